module 3proxyd

go 1.26
