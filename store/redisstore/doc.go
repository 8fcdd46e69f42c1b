// Package redisstore keeps everonce's records in Redis.
package redisstore
