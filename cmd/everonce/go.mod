module github.com/everonce/everonce/cmd/everonce

go 1.26

require (
	github.com/everonce/everonce v0.0.0
	github.com/everonce/everonce/store/sqlitestore v0.0.0
	github.com/everonce/everonce/store/pgxstore v0.0.0
	github.com/spf13/cobra v1.10.2
)
