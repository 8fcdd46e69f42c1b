module github.com/everonce/everonce

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/dunglas/httpsfv v1.1.2
	pgregory.net/rapid v1.3.0
)
