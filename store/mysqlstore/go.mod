module github.com/everonce/everonce/store/mysqlstore

go 1.26.0

require (
	github.com/everonce/everonce v0.0.0
	github.com/everonce/everonce/driver/drivertest v0.0.0
	github.com/go-sql-driver/mysql v1.10.1
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/anishathalye/porcupine v1.3.1 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
