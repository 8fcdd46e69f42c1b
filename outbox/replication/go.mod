module github.com/everonce/everonce/outbox/replication

go 1.26.0

require (
	github.com/everonce/everonce v0.0.0
	github.com/everonce/everonce/store/pgxstore v0.0.0
	github.com/jackc/pglogrepl v0.0.0-20251213150135-2e8d0df862c1
	github.com/jackc/pgx/v5 v5.12.0
)
