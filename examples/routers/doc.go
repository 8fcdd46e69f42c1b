// Package routers shows the middleware behind chi, gin and echo.
package routers
