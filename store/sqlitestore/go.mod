module github.com/everonce/everonce/store/sqlitestore

go 1.26.0

require (
	github.com/everonce/everonce v0.0.0
	modernc.org/sqlite v1.60.0
)
