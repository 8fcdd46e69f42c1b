module github.com/everonce/everonce/store/redisstore

go 1.26.0

require (
	github.com/everonce/everonce v0.0.0
	github.com/redis/rueidis v1.0.79
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/everonce/everonce/driver/drivertest v0.0.0
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	golang.org/x/sys v0.47.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
