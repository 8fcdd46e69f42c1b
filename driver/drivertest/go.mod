module github.com/everonce/everonce/driver/drivertest

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/everonce/everonce v0.0.0
	pgregory.net/rapid v1.3.0
)
