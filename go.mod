module 3proxyd

go 1.26.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // indirect
	github.com/google/renameio/v2 v2.0.2 // indirect
	github.com/miekg/dns v1.1.73
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)
