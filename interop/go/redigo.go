package main

// The advisor's code for Redigo is compiled in this module: see ../advise/compiled.py.
import _ "github.com/gomodule/redigo/redis"
