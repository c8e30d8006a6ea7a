//! Expected replies and events come from Redis 8.6, except where a comment says otherwise.

use crate::testing::{Bench, check, check_resp3};

#[test]
fn times_are_set_and_read() {
    check(&[
        ("set s x", "+OK"),
        ("hexpire s 10 fields 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hexpire none 10 fields 1 a", "*1|:-2"),
        ("hexpire none abc fields 1 a", "-ERR value is not an integer or out of range"),
        ("hexpire none -1 fields 1 a", "-ERR invalid expire time, must be >= 0"),
        ("hexpire none 99999999999999 fields 1 a", "-ERR invalid expire time in 'hexpire' command"),
        ("hexpire none 9223372036854775807 fields 1 a", "-ERR invalid expire time in 'hexpire' command"),
        ("hpexpire none 70368744177663 fields 1 a", "-ERR invalid expire time in 'hpexpire' command"),
        ("hpexpireat none 70368744177663 fields 1 a", "*1|:-2"),
        ("hpexpireat none 70368744177664 fields 1 a", "-ERR invalid expire time in 'hpexpireat' command"),
        ("hpexpireat none 281474976710655 fields 1 a", "-ERR invalid expire time in 'hpexpireat' command"),
        ("hpexpireat none 9223372036854775807 fields 1 a", "-ERR invalid expire time in 'hpexpireat' command"),
        ("hexpire none 10 foo 1 a", "-ERR unknown argument: foo"),
        ("hexpire none 10 nx 1 a b", "-ERR unknown argument: 1"),
        ("hexpire none 10 nx fields 1 a", "*1|:-2"),
        ("hexpire none 10 nx xx fields 1 a", "-ERR Multiple condition flags specified"),
        ("hexpire none 10 fields 0 a", "-ERR Parameter `numFields` should be greater than 0"),
        ("hexpire none 10 fields -1 a", "-ERR Parameter `numFields` should be greater than 0"),
        ("hexpire none 10 fields abc a", "-ERR Parameter `numFields` should be greater than 0"),
        ("hexpire none 10 fields 2 a", "-ERR wrong number of arguments"),
        ("hexpire none 10 fields 1 a b", "-ERR unknown argument: b"),
        ("hexpire none 10 fields 1 a nx", "*1|:-2"),
        ("hexpire none 10 fields 1", "-ERR wrong number of arguments for 'hexpire' command"),
        ("hexpire s abc foo 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hset h a 1 b 2 c 3", ":3"),
        ("object encoding h", "$8|listpack"),
        ("hexpire h 10 fields 1 none", "*1|:-2"),
        ("object encoding h", "$10|listpackex"),
        ("hgetall h", "*6|$1|a|$1|1|$1|b|$1|2|$1|c|$1|3"),
        ("hexpire h 10 foo 1 a", "-ERR unknown argument: foo"),
        ("hexpire h abc foo 1 a", "-ERR value is not an integer or out of range"),
        ("hexpire h -1 foo 1 a", "-ERR invalid expire time, must be >= 0"),
        ("hexpire h 10 fields 2 a a", "*2|:1|:1"),
        ("hexpire h 10 fields 3 a none b", "*3|:1|:-2|:1"),
        ("hexpire h 10 nx fields 2 a c", "*2|:0|:1"),
        ("hexpire h 20 gt fields 2 a c", "*2|:1|:1"),
        ("hexpire h 20 lt fields 2 a c", "*2|:0|:0"),
        ("hexpire h 30 lt fields 2 a c", "*2|:0|:0"),
        ("hexpire h 30 xx fields 3 a c none", "*3|:1|:1|:-2"),
        ("hgetall h", "*6|$1|b|$1|2|$1|c|$1|3|$1|a|$1|1"),
        ("httl h fields 4 a b c d", "*4|:30|:10|:30|:-2"),
        ("hpersist h fields 4 a b c d", "*4|:1|:1|:1|:-2"),
        ("hpersist h fields 2 a a", "*2|:-1|:-1"),
        ("hexpire h 30 xx fields 1 a", "*1|:0"),
        ("hexpire h 30 gt fields 1 a", "*1|:0"),
        ("hexpire h 30 lt fields 1 a", "*1|:1"),
        ("hexpire h 0 fields 1 a", "*1|:2"),
        ("hgetall h", "*4|$1|b|$1|2|$1|c|$1|3"),
        ("hpexpireat h 1 nx fields 1 b", "*1|:2"),
        ("hpexpireat h 1 gt fields 1 b", "*1|:-2"),
        ("hpexpireat h 1 xx fields 1 b", "*1|:-2"),
        ("hgetall h", "*2|$1|c|$1|3"),
        ("hpexpireat h 1 fields 1 c", "*1|:2"),
        ("exists h", ":0"),
        ("object encoding h", "$-1"),
        ("hset h a 1", ":1"),
        ("hexpire h 100 fields 1 a", "*1|:1"),
        ("hset h a 2", ":0"),
        ("httl h fields 1 a", "*1|:-1"),
        ("hexpire h 100 fields 1 a", "*1|:1"),
        ("hincrby h a 2", ":4"),
        ("httl h fields 1 a", "*1|:100"),
        ("hincrbyfloat h a 2.5", "$3|6.5"),
        ("httl h fields 1 a", "*1|:100"),
        ("hsetnx h a 1", ":0"),
        ("httl h fields 1 a", "*1|:100"),
        ("httl s fields 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("httl none fields 1 a", "*1|:-2"),
        ("httl none fields 2 a", "-ERR The `numfields` parameter must match the number of arguments"),
        ("httl none fields 0 a", "-ERR Number of fields must be a positive integer"),
        ("httl none fields x a", "-ERR Number of fields must be a positive integer"),
        ("httl none foo 1 a", "-ERR Mandatory argument FIELDS is missing or not at the right position"),
        ("httl s foo 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hpersist s fields 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hpersist none fields 1 a", "*1|:-2"),
        ("hpersist none fields 2 a", "-ERR The `numfields` parameter must match the number of arguments"),
        ("hpersist none fields 0 a", "-ERR Number of fields must be a positive integer"),
        ("hpersist none fields x a", "-ERR Number of fields must be a positive integer"),
        ("hpersist none foo 1 a", "-ERR Mandatory argument FIELDS is missing or not at the right position"),
        ("hpersist s foo 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hexpiretime none fields x a", "-ERR Number of fields must be a positive integer"),
        ("hpexpiretime none fields x a", "-ERR Number of fields must be a positive integer"),
        ("hpttl none fields -5 a", "-ERR Number of fields must be a positive integer"),
        ("httl h fields 1", "-ERR wrong number of arguments for 'httl' command"),
        ("hexpire h 10 fields 9999999999999999999 a", "-ERR Parameter `numFields` should be greater than 0"),
        ("httl h fields 9999999999999999999 a", "-ERR Number of fields must be a positive integer"),
    ]);
}

#[test]
fn values_are_read_and_set_with_times() {
    check(&[
        ("set s x", "+OK"),
        ("hset h a 1 b 2 c 3", ":3"),
        ("hgetex s fields 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hgetex none fields 1 a", "*1|$-1"),
        ("hgetex none fields 2 a b", "*2|$-1|$-1"),
        ("hgetex none fields 2 a", "-ERR wrong number of arguments"),
        ("hgetex none fields 1 a b", "-ERR unknown argument: b"),
        ("hgetex none fields 0 a", "-ERR invalid number of fields"),
        ("hgetex none fields x a", "-ERR invalid number of fields"),
        ("hgetex none foo 1 a", "-ERR unknown argument: foo"),
        ("hgetex h fields 2 a x", "*2|$1|1|$-1"),
        ("httl h fields 1 a", "*1|:-1"),
        ("hgetex h ex 100 fields 2 a x", "*2|$1|1|$-1"),
        ("httl h fields 2 a b", "*2|:100|:-1"),
        ("hgetex h persist fields 2 a b", "*2|$1|1|$1|2"),
        ("httl h fields 2 a b", "*2|:-1|:-1"),
        (
            "hgetex h ex 100 persist fields 1 a",
            "-ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified",
        ),
        (
            "hgetex h persist ex 100 fields 1 a",
            "-ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified",
        ),
        (
            "hgetex h ex 100 px 100 fields 1 a",
            "-ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified",
        ),
        (
            "hgetex h ex 100 ex 200 fields 1 a",
            "-ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified",
        ),
        ("hgetex h ex abc fields 1 a", "-ERR value is not an integer or out of range"),
        ("hgetex h ex 0 fields 1 a", "*1|$1|1"),
        ("hgetex h ex -1 fields 1 a", "-ERR invalid expire time, must be >= 0"),
        ("hgetex h ex 9223372036854775807 fields 1 a", "-ERR invalid expire time in 'hgetex' command"),
        ("hgetex h px 9223372036854775807 fields 1 a", "-ERR invalid expire time in 'hgetex' command"),
        ("hgetex h pxat 70368744177663 fields 1 a", "*1|$-1"),
        ("hgetex h pxat 70368744177664 fields 1 a", "-ERR invalid expire time in 'hgetex' command"),
        ("hpexpiretime h fields 1 a", "*1|:-2"),
        ("hgetex h pxat 0 fields 1 a", "*1|$-1"),
        ("hgetex h exat 1 fields 1 a", "*1|$-1"),
        ("hgetall h", "*4|$1|b|$1|2|$1|c|$1|3"),
        ("hgetex h exat 1 fields 2 b c", "*2|$1|2|$1|3"),
        ("exists h", ":0"),
        ("hset h a 1 b 2 c 3", ":3"),
        ("hgetex h fields 1 a ex 100", "*1|$1|1"),
        ("hgetex h fields 1 a persist", "*1|$1|1"),
        ("hgetex h keepttl fields 1 a", "-ERR unknown argument"),
        ("hgetex h ex fields 1 a", "-ERR value is not an integer or out of range"),
        ("hgetex h ex 100 fields", "-ERR wrong number of arguments for 'hgetex' command"),
        ("hgetex h nx fields 1 a", "-ERR unknown argument: nx"),
        ("hgetex h fields 1 a fields 1 b", "-ERR FIELDS keyword specified multiple times"),
        ("hgetex h ex 100", "-ERR wrong number of arguments for 'hgetex' command"),
        ("hgetex none ex abc fields 1 a", "-ERR value is not an integer or out of range"),
        ("hgetex none ex 0 fields 1 a", "*1|$-1"),
        ("hgetex s ex abc fields 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hgetex h ex 10 fields 2 a a", "*2|$1|1|$1|1"),
        ("hgetdel s fields 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hgetdel none fields 2 a b", "*2|$-1|$-1"),
        ("hgetdel none fields 0 a", "-ERR Number of fields must be a positive integer"),
        ("hgetdel none fields x a", "-ERR Number of fields must be a positive integer"),
        ("hgetdel none fields 1 a b", "-ERR The `numfields` parameter must match the number of arguments"),
        ("hgetdel none fields 2 a", "-ERR The `numfields` parameter must match the number of arguments"),
        ("hgetdel none foo 1 a", "-ERR Mandatory argument FIELDS is missing or not at the right position"),
        ("hgetdel s foo 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hgetdel h fields 2 a x", "*2|$1|1|$-1"),
        ("hgetdel h fields 2 b b", "*2|$1|2|$-1"),
        ("hgetall h", "*2|$1|c|$1|3"),
        ("hgetdel h fields 1 c", "*1|$1|3"),
        ("exists h", ":0"),
        ("hsetex s fields 1 a 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hsetex s2 fields 1 a 1", ":1"),
        ("hgetall s2", "*2|$1|a|$1|1"),
        ("httl s2 fields 1 a", "*1|:-1"),
        ("hsetex s2 ex 100 fields 2 a 1 b 2", ":1"),
        ("httl s2 fields 2 a b", "*2|:100|:100"),
        ("hsetex s2 fields 1 a 3", ":1"),
        ("httl s2 fields 2 a b", "*2|:-1|:100"),
        ("hsetex s2 keepttl fields 1 b 3", ":1"),
        ("httl s2 fields 2 a b", "*2|:-1|:100"),
        ("hsetex s2 fnx fields 2 a 3 c 4", ":0"),
        ("hgetall s2", "*4|$1|b|$1|3|$1|a|$1|3"),
        ("hsetex s2 fxx fields 2 a 5 c 4", ":0"),
        ("hsetex s2 fxx fields 2 a 5 b 6", ":1"),
        ("hsetex s2 fnx ex 100 fields 2 d 5 e 6", ":1"),
        ("hsetex s2 ex 100 fnx fields 2 f 5 g 6", ":1"),
        (
            "hsetex s2 ex 100 keepttl fields 1 a 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        (
            "hsetex s2 keepttl ex 100 fields 1 a 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        ("hsetex s2 fnx fxx fields 1 a 1", "-ERR Only one of FXX or FNX arguments can be specified"),
        ("hsetex s2 fxx fnx fields 1 a 1", "-ERR Only one of FXX or FNX arguments can be specified"),
        ("hsetex s2 fxx fxx fields 1 a 1", "-ERR Only one of FXX or FNX arguments can be specified"),
        (
            "hsetex s2 keepttl keepttl fields 1 a 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        (
            "hsetex s2 ex 100 ex 50 fields 1 a 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        (
            "hsetex s2 ex 100 px 50 fields 1 a 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        ("hsetex s2 ex abc fields 1 a 1", "-ERR value is not an integer or out of range"),
        ("hsetex s2 ex 0 fields 1 a 1", ":1"),
        ("hsetex s2 ex -5 fields 1 a 1", "-ERR invalid expire time, must be >= 0"),
        ("hsetex s2 exat 1 fields 1 a 1", ":1"),
        ("hexists s2 a", ":0"),
        ("hsetex s2 exat 1 fnx fields 1 zz 1", ":1"),
        ("hsetex new exat 1 fields 1 zz 1", ":1"),
        ("exists new", ":0"),
        ("hsetex new fields 2 a 1", "-ERR wrong number of arguments"),
        ("hsetex new fields 1 a 1 b", "-ERR unknown argument: b"),
        ("hsetex new fields 1 a 1 b 2", "-ERR unknown argument: b"),
        ("hsetex new fields 0 a 1", "-ERR invalid number of fields"),
        ("hsetex new fields x a 1", "-ERR invalid number of fields"),
        ("hsetex new foo 1 a 1", "-ERR unknown argument: foo"),
        ("hsetex new fields 1 a", "-ERR wrong number of arguments for 'hsetex' command"),
        ("hsetex new ex 10 fields 1 a", "-ERR wrong number of arguments"),
        ("hsetex new fields 1 a 1 ex 100", ":1"),
        ("exists new", ":1"),
        ("httl new fields 1 a", "*1|:100"),
        // Redis rejects NX here.
        ("hsetex new nx fields 1 a 1", ":0"),
        ("hsetex new persist fields 1 a 1", "-ERR unknown argument"),
        ("hsetex new fxx fields 1 a 1", ":1"),
        ("exists new", ":1"),
        ("hsetex new2 fxx fields 1 a 1", ":0"),
        ("exists new2", ":0"),
        ("hsetex new2 fnx fields 2 a 1 a 2", ":1"),
        ("hgetall new2", "*2|$1|a|$1|2"),
        ("object encoding new2", "$8|listpack"),
        ("hsetex new2 ex 100 fields 2 q 1 q 2", ":1"),
        ("hgetall new2", "*4|$1|q|$1|2|$1|a|$1|2"),
        ("hsetex s ex abc fields 1 a 1", "-ERR value is not an integer or out of range"),
        ("hsetex s foo", "-ERR wrong number of arguments for 'hsetex' command"),
        ("hsetex new pxat 70368744177664 fields 1 a 1", "-ERR invalid expire time in 'hsetex' command"),
        ("hsetex new pxat 70368744177663 fields 1 a 1", ":1"),
        ("hsetex new pxat 9223372036854775807 fields 1 a 1", "-ERR invalid expire time in 'hsetex' command"),
        ("hsetex new ex 9223372036854775807 fields 1 a 1", "-ERR invalid expire time in 'hsetex' command"),
        ("hsetex new px 9223372036854775807 fields 1 a 1", "-ERR invalid expire time in 'hsetex' command"),
        ("hpexpiretime new fields 1 a", "*1|:70368744177663"),
    ]);
}

#[test]
fn errors_come_in_redis_order() {
    check(&[
        ("set s x", "+OK"),
        ("hset h a 1 b 2 c 3", ":3"),
        ("hexpire h 10 nx nx fields 1 a", "*1|:1"),
        ("hexpire h 10 gt lt fields 1 a", "-ERR Multiple condition flags specified"),
        ("hexpire h 10 fields 1 a gt", "*1|:0"),
        ("hexpire h 10 fields 1 a fields 1 b", "-ERR FIELDS keyword specified multiple times"),
        ("hexpire h 10 fields 1 a foo", "-ERR unknown argument: foo"),
        ("hexpire h 10 nx xx foo", "-ERR unknown argument: foo"),
        ("hexpire h 10 foo nx xx fields 1 a", "-ERR unknown argument: foo"),
        ("hexpire h 10 nx gt lt xx", "-ERR missing FIELDS argument"),
        ("hexpire h 10 fields 5 a b nx", "-ERR wrong number of arguments"),
        ("hexpire h 10 fields 0 a b nx", "-ERR Parameter `numFields` should be greater than 0"),
        ("hexpire h 10 nx fields 1", "-ERR FIELDS requires at least numfields and one field argument"),
        ("hexpire h 10 nx xx fields", "-ERR FIELDS requires at least numfields and one field argument"),
        ("hexpire h 10 nx a fields", "-ERR unknown argument: a"),
        ("hexpire h 10 nx fields fields", "-ERR FIELDS requires at least numfields and one field argument"),
        ("hexpire h 10 fields 1 nx", "*1|:-2"),
        ("hexpire h 10 fields 2 a nx", "*2|:1|:-2"),
        ("hexpire h 10 fields 4294967297 a", "-ERR Parameter `numFields` should be greater than 0"),
        ("hexpire h 10 fields 1.0 a", "-ERR Parameter `numFields` should be greater than 0"),
        ("hexpire h 10 fields +1 a", "-ERR Parameter `numFields` should be greater than 0"),
        ("hexpire h 10 fields 01 a", "-ERR Parameter `numFields` should be greater than 0"),
        ("hexpire h 10 fields 1 a nx xx", "-ERR Multiple condition flags specified"),
        ("hexpire h 10 gt fields 1 a lt", "-ERR Multiple condition flags specified"),
        ("hpersist h fields 1 a nx", "-ERR The `numfields` parameter must match the number of arguments"),
        ("hpersist h fields 2147483648 a", "-ERR The `numfields` parameter must match the number of arguments"),
        ("hpersist h nx fields 1 a", "-ERR Mandatory argument FIELDS is missing or not at the right position"),
        ("hpersist h foo fields 1 a", "-ERR Mandatory argument FIELDS is missing or not at the right position"),
        ("httl h foo fields 1 a", "-ERR Mandatory argument FIELDS is missing or not at the right position"),
        ("httl h fields 2147483648 a", "-ERR The `numfields` parameter must match the number of arguments"),
        ("hgetdel h foo fields 1 a", "-ERR Mandatory argument FIELDS is missing or not at the right position"),
        ("hgetdel h fields 2147483648 a", "-ERR The `numfields` parameter must match the number of arguments"),
        ("hgetex h foo 1 a", "-ERR unknown argument: foo"),
        ("hgetex h ex 10 foo 1 a", "-ERR unknown argument: foo"),
        ("hgetex h ex 10 fields 1 a foo", "-ERR unknown argument: foo"),
        ("hgetex h foo ex abc fields 1 a", "-ERR unknown argument: foo"),
        ("hgetex h ex abc foo fields 1 a", "-ERR value is not an integer or out of range"),
        ("hgetex h fields 1 a ex", "-ERR missing expire time"),
        ("hgetex h fields 1 a ex abc", "-ERR value is not an integer or out of range"),
        ("hgetex h fields 0 a ex abc", "-ERR invalid number of fields"),
        ("hgetex h ex abc fields 0 a", "-ERR value is not an integer or out of range"),
        ("hgetex h ex -1 fields 0 a", "-ERR invalid expire time, must be >= 0"),
        ("hgetex h fields 2 a ex", "*2|$1|1|$-1"),
        ("hgetex h persist foo fields 1 a", "-ERR unknown argument: foo"),
        (
            "hgetex h persist persist fields 1 a",
            "-ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified",
        ),
        ("hgetex s foo fields 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hgetex s fields 1 a foo", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hgetex h fxx fields 1 a", "-ERR unknown argument"),
        ("hgetex h fnx fields 1 a", "-ERR unknown argument"),
        ("hgetex h keepttl fields 1 a", "-ERR unknown argument"),
        ("hgetex h keepttl foo fields 1 a", "-ERR unknown argument: foo"),
        ("hgetex h foo keepttl fields 1 a", "-ERR unknown argument: foo"),
        (
            "hgetex h ex 1 keepttl fields 1 a",
            "-ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified",
        ),
        ("hgetex h fields 1 a persist ex", "-ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified"),
        ("hsetex h persist foo fields 1 a 1", "-ERR unknown argument: foo"),
        ("hsetex h foo 1 a 1 b", "-ERR unknown argument: foo"),
        ("hsetex h fields 1 a 1 ex", "-ERR missing expire time"),
        ("hsetex h fields 1 a 1 ex abc", "-ERR value is not an integer or out of range"),
        ("hsetex h fields 1 a 1 fxx fnx", "-ERR Only one of FXX or FNX arguments can be specified"),
        ("hsetex h fields 1 a 1 persist", "-ERR unknown argument"),
        (
            "hsetex h ex 10 persist fields 1 a 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        ("hsetex h fields 2 a 1 ex 10", ":1"),
        ("hsetex h ex 10 fields 1 a 1 fields 1 b 2", "-ERR FIELDS keyword specified multiple times"),
        ("hsetex s ex 10 foo fields 1 a 1", "-ERR unknown argument: foo"),
        ("hsetex s fxx fields 1 a 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("hsetex s fields 3 a 1", "-ERR wrong number of arguments"),
        ("hsetex h fields 2147483648 a 1", "-ERR invalid number of fields"),
        ("hsetex h fields 1073741825 a 1", "-ERR wrong number of arguments"),
        ("hexpire h abc nx xx fields 1 a", "-ERR value is not an integer or out of range"),
        ("hexpire h abc fields 0 a", "-ERR value is not an integer or out of range"),
        ("hexpire h 99999999999999 fields 0 a", "-ERR invalid expire time in 'hexpire' command"),
        ("hexpire h -1 fields 0 a", "-ERR invalid expire time, must be >= 0"),
        ("hexpire h -0 fields 1 a", "-ERR value is not an integer or out of range"),
        ("hgetall h", "*8|$1|b|$1|2|$1|c|$1|3|$1|a|$1|1|$2|ex|$2|10"),
        ("hget h", "-ERR wrong number of arguments for 'hget' command"),
        ("hexpire h 10 FIELDS 1 b", "*1|:1"),
        ("hexpire h 10 NX FIELDS 1 b", "*1|:0"),
        ("hexpireat h 70368744177 fields 1 c", "*1|:1"),
        ("hexpireat h 70368744178 fields 1 c", "-ERR invalid expire time in 'hexpireat' command"),
        ("hgetex h exat 70368744177 fields 1 c", "*1|$1|3"),
        ("hsetex h exat 70368744178 fields 1 c 1", "-ERR invalid expire time in 'hsetex' command"),
        ("hpexpire h 1001 fields 1 c", "*1|:1"),
    ]);
}

#[test]
fn resp3() {
    check_resp3(&[
        ("hsetex h ex 100 fields 2 a 1 b 2", ":1"),
        ("hgetex h fields 2 a none", "*2|$1|1|_"),
        ("hgetdel h fields 2 a none", "*2|$1|1|_"),
        ("httl h fields 2 b none", "*2|:100|:-2"),
        ("hgetall h", "%1|$1|b|$1|2"),
        ("hgetex none fields 1 a", "*1|_"),
    ]);
}

#[test]
fn options_of_the_other_command_are_refused() {
    check(&[
        ("hgetex h keepttl persist fields 1 a", "-ERR unknown argument"),
        ("hgetex h keepttl persist fields 2 a", "-ERR wrong number of arguments"),
        ("hsetex h persist keepttl fields 1 a 1", "-ERR unknown argument"),
        (
            "hsetex h persist persist fields 1 a 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
    ]);
}

#[test]
fn valkey_s_conditions_on_the_key() {
    check(&[
        ("hsetex h xx fields 1 a 1", ":0"),
        ("exists h", ":0"),
        ("hsetex h nx fields 1 a 1", ":1"),
        ("hsetex h nx fields 1 a 2", ":0"),
        ("hsetex h xx fnx fields 1 b 2", ":1"),
        ("hsetex h nx xx fields 1 b 2", "-ERR unknown argument: xx"),
        ("hgetall h", "*4|$1|a|$1|1|$1|b|$1|2"),
    ]);
}

/// Runs commands and compares the reply and the events of each.
fn check_events(bench: &mut Bench, script: &[(&str, &str, &[&str])]) {
    for (line, reply, events) in script {
        assert_eq!(bench.run(line), *reply, "{line}");
        assert_eq!(bench.events(), *events, "{line}");
    }
}

#[test]
fn changes_have_redis_s_events() {
    let (set, del) = (&["hset h"][..], &["hdel h", "del h"][..]);
    check_events(
        &mut Bench::default(),
        &[
            ("hset h a 1 b 2 c 3 d 4", ":4", set),
            ("hexpire h 100 fields 2 a b", "*2|:1|:1", &["hexpire h"]),
            ("hexpire h 100 gt fields 2 a none", "*2|:0|:-2", &[]),
            ("hpersist h fields 3 a b c", "*3|:1|:1|:-1", &["hpersist h"]),
            ("hpersist h fields 1 a", "*1|:-1", &[]),
            ("hexpire h 0 fields 2 a b", "*2|:2|:2", &["hdel h"]),
            ("hexpire h 0 fields 2 c d", "*2|:2|:2", del),
            ("hset h a 1 b 2 c 3 d 4", ":4", set),
            ("hgetex h fields 1 a", "*1|$1|1", &[]),
            ("hgetex h ex 10 fields 2 a b", "*2|$1|1|$1|2", &["hexpire h"]),
            ("hgetex h persist fields 2 a b", "*2|$1|1|$1|2", &["hpersist h"]),
            ("hgetex h persist fields 2 a b", "*2|$1|1|$1|2", &[]),
            ("hgetex h ex 0 fields 2 a b", "*2|$1|1|$1|2", &["hdel h"]),
            ("hgetex h ex 0 fields 2 c d", "*2|$1|3|$1|4", del),
            ("hsetex h fields 2 a 1 b 2", ":1", set),
            ("hsetex h ex 10 fields 2 a 1 b 2", ":1", &["hset h", "hexpire h"]),
            ("hsetex h keepttl fields 2 a 1 b 2", ":1", set),
            ("hsetex h fnx fields 2 a 1 b 2", ":0", &[]),
            ("hsetex h ex 0 fields 2 a 1 q 2", ":1", &["hset h", "hdel h"]),
            ("hsetex h exat 1 fields 1 b 1", ":1", &["hset h", "hdel h", "del h"]),
            ("hset h a 1 b 2 c 3 d 4", ":4", set),
            ("hgetdel h fields 2 a zz", "*2|$1|1|$-1", &["hdel h"]),
            ("hgetdel h fields 1 zz", "*1|$-1", &[]),
            ("hgetdel h fields 3 b c d", "*3|$1|2|$1|3|$1|4", del),
            ("hsetex h ex 0 fields 2 a 1 q 2", ":1", &["hset h", "hdel h", "del h"]),
            ("exists h", ":0", &[]),
        ],
    );
}

/// Creates a bench with a hash, packed or as a table. Field `a` has expired but not been removed; `b` and `c` have not
/// expired. The events so far are cleared.
fn with_due_field(is_big: bool) -> Bench {
    let mut bench = Bench::default();
    if is_big {
        bench.rules.hash.listpack_entries = 0;
    }
    bench.check(&[
        ("hset h a 1 b 2 c 3", ":3"),
        ("hpexpire h 10 fields 1 a", "*1|:1"),
        ("hexpire h 100 fields 1 b", "*1|:1"),
    ]);
    bench.events();
    bench.now_ms += 11;
    bench
}

#[test]
fn no_command_sees_an_expired_field() {
    for is_big in [false, true] {
        let in_order = |reply: &str| {
            let mut words: Vec<_> = reply.split('|').map(String::from).collect();
            words.sort();
            words
        };
        for (line, reply) in [
            ("hget h a", "$-1"),
            ("hmget h a b", "*2|$-1|$1|2"),
            ("hexists h a", ":0"),
            ("hstrlen h a", ":0"),
            ("hlen h", ":2"),
            ("hkeys h", "*2|$1|b|$1|c"),
            ("hvals h", "*2|$1|2|$1|3"),
            ("hgetall h", "*4|$1|b|$1|2|$1|c|$1|3"),
            ("hscan h 0", "*2|$1|0|*4|$1|b|$1|2|$1|c|$1|3"),
            ("hrandfield h 9", "*2|$1|b|$1|c"),
            ("httl h fields 2 a c", "*2|:-2|:-1"),
            ("hpersist h fields 1 a", "*1|:-2"),
            ("hexpire h 100 fields 1 a", "*1|:-2"),
            ("hexpire h 0 fields 1 a", "*1|:-2"),
            ("hgetex h fields 1 a", "*1|$-1"),
            ("hgetex h ex 10 fields 1 a", "*1|$-1"),
            ("hsetex h fxx fields 1 a 1", ":0"),
            // Redis removes it and replies 1.
            ("hdel h a", ":0"),
            ("hgetdel h fields 1 a", "*1|$-1"),
            ("hset h a 5", ":1"),
            ("hsetnx h a 5", ":1"),
            ("hincrby h a 5", ":5"),
            ("hincrbyfloat h a 5", "$1|5"),
            ("hsetex h fnx fields 1 a 5", ":1"),
            ("hsetex h keepttl fields 1 a 5", ":1"),
        ] {
            let mut bench = with_due_field(is_big);
            assert_eq!(in_order(&bench.run(line)), in_order(reply), "{line}");
            if line.ends_with(" a 5") || line.ends_with("incrby h a 5") {
                bench.check(&[("hget h a", "$1|5"), ("httl h fields 1 a", "*1|:-1")]);
            }
        }
        let mut bench = with_due_field(is_big);
        for _ in 0..50 {
            let picked = bench.run("hrandfield h -1");
            assert!(picked == "*1|$1|b" || picked == "*1|$1|c", "{picked}");
        }
        bench.check(&[("rpush l a b", ":2"), ("sort l by nosort get h->*", "*2|$-1|$-1")]);
        bench.check(&[("hset w_a f 1", ":1"), ("hset w_b f 2", ":1"), ("hpexpire w_a 1 fields 1 f", "*1|:1")]);
        bench.now_ms += 2;
        bench.check(&[("sort l by nosort get w_*->f", "*2|$-1|$1|2")]);
    }
}

#[test]
fn a_hash_of_only_expired_fields_is_deleted() {
    for line in ["hdel h a b c", "hgetdel h fields 3 a b c"] {
        let mut bench = with_due_field(false);
        bench.run(line);
        assert_eq!(bench.events(), ["hdel h", "del h"], "{line}");
        bench.check(&[("exists h", ":0")]);
    }
    for line in ["hdel h a", "hgetdel h fields 1 a"] {
        let mut bench = Bench::default();
        bench.check(&[("hset h a 1", ":1"), ("hpexpire h 10 fields 1 a", "*1|:1"), ("exists h", ":1")]);
        bench.events();
        bench.now_ms += 11;
        bench.run(line);
        assert_eq!(bench.events(), ["del h"], "{line}");
        bench.check(&[("exists h", ":0")]);
    }
}

#[test]
fn expiries_move_and_vanish_with_the_hash() {
    check(&[
        ("hset h a 1 b 2", ":2"),
        ("hexpire h 100 fields 1 a", "*1|:1"),
        ("copy h c", ":1"),
        ("rename h r", "+OK"),
        ("move r 3", ":1"),
        ("httl c fields 2 a b", "*2|:100|:-1"),
        ("hset c a 1", ":0"),
        ("httl c fields 2 a b", "*2|:-1|:-1"),
        ("hset r a 1", ":1"),
        ("httl r fields 1 a", "*1|:-1"),
    ]);
}

#[test]
fn values_with_times_are_recorded_in_commands_of_redis_7_4() {
    let mut bench = Bench::default();
    let set = ["*4 $4 HSET $1 h $1 a $1 1 ", "*6 $10 HPEXPIREAT $1 h $13 4102444800000 $6 FIELDS $1 1 $1 a "];
    assert_eq!(bench.recorded("hsetex h PXAT 4102444800000 FIELDS 1 a 1"), set);
    assert_eq!(bench.recorded("hsetex h KEEPTTL FIELDS 1 a 1"), set);
    assert_eq!(bench.recorded("hincrbyfloat h a 0"), set);
    assert_eq!(bench.recorded("hsetex h KEEPTTL FIELDS 1 b 2"), ["*4 $4 HSET $1 h $1 b $1 2 "]);
    let both =
        ["*6 $4 HSET $1 h $1 c $1 4 $1 b $1 5 ", "*7 $10 HPEXPIREAT $1 h $13 4102444800001 $6 FIELDS $1 2 $1 c $1 b "];
    assert_eq!(bench.recorded("hsetex h PXAT 4102444800001 FIELDS 3 c 3 c 4 b 5"), both);
    let mixed = [
        "*8 $4 HSET $1 h $1 b $1 6 $1 a $1 7 $1 d $1 8 ",
        "*6 $10 HPEXPIREAT $1 h $13 4102444800000 $6 FIELDS $1 1 $1 a ",
        "*6 $10 HPEXPIREAT $1 h $13 4102444800001 $6 FIELDS $1 1 $1 b ",
    ];
    assert_eq!(bench.recorded("hsetex h KEEPTTL FIELDS 3 b 6 a 7 d 8"), mixed);
}
