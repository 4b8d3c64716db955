module github.com/ringfence-go/ringfence/verify

go 1.26

replace github.com/ringfence-go/ringfence => ../

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/ringfence-go/ringfence v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	pgregory.net/rapid v1.3.0
)

require (
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
