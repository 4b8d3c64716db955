module github.com/ringfence-go/ringfence

go 1.26

require (
	github.com/puzpuzpuz/xsync/v3 v3.5.1
	github.com/stretchr/testify v1.12.1
	golang.org/x/sync v0.19.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
