module github.com/everonce/everonce/internal/e2e

go 1.26.0

require (
	github.com/everonce/everonce v0.0.0
	github.com/everonce/everonce/store/pgxstore v0.0.0
	github.com/everonce/everonce/store/sqlitestore v0.0.0
)
