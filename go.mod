module github.com/everonce/everonce

go 1.26.0

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3
)

require github.com/google/uuid v1.6.0
