module github.com/everonce/everonce/store/pgxstore

go 1.26.0

require (
	github.com/everonce/everonce v0.0.0
	github.com/jackc/pgx/v5 v5.12.0
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/everonce/everonce/driver/drivertest v0.0.0
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
