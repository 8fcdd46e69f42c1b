module github.com/everonce/everonce/store/pgxstore

go 1.26

require (
	github.com/everonce/everonce v0.0.0
	github.com/jackc/pgx/v5 v5.12.0
)
