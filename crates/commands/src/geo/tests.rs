//! Expected replies come from redis-server 7.0 and 8.6, or from Valkey 9.1 for BYPOLYGON.

use crate::testing::{Bench, check, check_resp3};

const SYNTAX: &str = "-ERR syntax error";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const UNIT: &str = "-ERR unsupported unit provided. please use M, KM, FT, MI";
const NO_MEMBER: &str = "-ERR could not decode requested zset member";
const SICILY: (&str, &str) = ("geoadd g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2");

#[test]
fn adding() {
    check(&[
        SICILY,
        ("type g", "+zset"),
        ("zrange g 0 -1 withscores", "*4|$7|Palermo|$16|3479099956230698|$7|Catania|$16|3479447370796909"),
        ("geoadd g 13.361389 38.115556 Palermo", ":0"),
        ("geoadd g nx 1 1 Palermo 12.75 37.9 Edge", ":1"),
        ("geoadd g xx ch 13.3 38.1 Palermo 1 1 Nothing", ":1"),
        ("geoadd g ch ch 13.3 38.1 Palermo 1 1 New", ":1"),
        ("geoadd g xx 9 9 Palermo", ":0"),
        ("geopos g Palermo", "*1|*2|$19|8.99999946355819702|$19|9.00000020172915782"),
        ("geoadd nokey xx 1 1 a", ":0"),
        ("exists nokey", ":0"),
        ("geoadd g nx xx 1 1 a", SYNTAX),
        ("geoadd g 1 1 a 2", SYNTAX),
        ("geoadd g nx ch xx", SYNTAX),
        ("geoadd g x 1 a", "-ERR value is not a valid float"),
        ("geoadd g 1 nan a", "-ERR value is not a valid float"),
        ("geoadd g 1 1 fine 200 100 a", "-ERR invalid longitude,latitude pair 200.000000,100.000000"),
        ("geoadd g -180.5 0 a", "-ERR invalid longitude,latitude pair -180.500000,0.000000"),
        ("geoadd g inf 86 a", "-ERR invalid longitude,latitude pair inf,86.000000"),
        ("zscore g fine", "$-1"),
        ("geoadd corners 180 85.05112878 ne -180 -85.05112878 sw", ":2"),
        ("zrange corners 0 -1 withscores", "*4|$2|sw|$1|0|$2|ne|$17|13510798882111488"),
        ("set s x", "+OK"),
        ("geoadd s 1 1 a", WRONG_TYPE),
        ("geoadd s 1 100 a", "-ERR invalid longitude,latitude pair 1.000000,100.000000"),
    ]);
}

#[test]
fn many_members_are_added_to_a_large_index() {
    let mut bench = Bench::default();
    let mut words = vec!["geoadd".to_string(), "g".into()];
    words.extend((0..300).flat_map(|n| [format!("{}", n % 180), "1.5".into(), format!("m{n}")]));
    assert_eq!(bench.run_args(&words), ":300");
    bench.check(&[
        ("object encoding g", "$8|skiplist"),
        ("geosearch g fromlonlat 7 1.5 byradius 1 km", "*2|$4|m187|$2|m7"),
        ("geosearch g fromlonlat 7 1.5 byradius 1 km count 1 any", "*1|$4|m187"),
    ]);
}

#[test]
fn places_and_distances() {
    check(&[
        SICILY,
        ("geodist g Palermo Catania", "$11|166274.1516"),
        ("geodist g Palermo Catania km", "$8|166.2742"),
        ("geodist g Palermo Catania MI", "$8|103.3182"),
        ("geodist g Palermo Catania ft", "$11|545518.8700"),
        ("geodist g Palermo Palermo", "$6|0.0000"),
        ("geodist g Palermo Foo", "$-1"),
        ("geodist g Palermo Catania parsec", UNIT),
        ("geodist g Palermo Catania m m", SYNTAX),
        ("geodist nokey a b", "$-1"),
        ("geodist nokey a b parsec", UNIT),
        ("geohash g Palermo Foo Catania", "*3|$11|sqc8b49rny0|$-1|$11|sqdtr74hyu0"),
        ("geohash nokey a", "*1|$-1"),
        ("geohash g", "*0"),
        (
            "geopos g Palermo Foo Catania",
            "*3|*2|$20|13.36138933897018433|$20|38.11555639549629859|*-1|*2|$20|15.08726745843887329|$20|\
             37.50266842333162032",
        ),
        ("geopos nokey a b", "*2|*-1|*-1"),
        ("zadd z -1 negative 1e300 huge 0.5 half inf inf", ":4"),
        ("geohash z half", "*1|$11|00bh0hbj200"),
        ("geopos z negative", "*1|*2|$3|180|$19|85.0511287799999991"),
        ("geopos z huge", "*1|*2|$22|-179.99999731779098511|$21|-85.05112751263942528"),
        ("set s x", "+OK"),
        ("geodist s a b", WRONG_TYPE),
        ("geohash s a", WRONG_TYPE),
        ("geopos s a", WRONG_TYPE),
    ]);
    check_resp3(&[
        SICILY,
        ("geodist g Palermo Catania", "$11|166274.1516"),
        ("geodist g a b", "_"),
        ("geohash g a", "*1|_"),
        ("geopos g Palermo a", "*2|*2|,13.36138933897018433|,38.11555639549629859|_"),
        (
            "geosearch g frommember Palermo byradius 1 km withcoord withdist withhash",
            "*1|*4|$7|Palermo|$6|0.0000|:3479099956230698|*2|,13.36138933897018433|,38.11555639549629859",
        ),
    ]);
}

#[test]
fn searching() {
    check(&[
        SICILY,
        ("geoadd g 12.758489 38.788135 edge1 17.24151 38.788135 edge2", ":2"),
        ("geosearch g fromlonlat 15 37 byradius 200 km asc", "*2|$7|Catania|$7|Palermo"),
        (
            "geosearch g fromlonlat 15 37 bybox 400 400 km asc withcoord withdist",
            "*4|*3|$7|Catania|$7|56.4413|*2|$20|15.08726745843887329|$20|37.50266842333162032|*3|$7|Palermo|$8|\
             190.4424|*2|$20|13.36138933897018433|$20|38.11555639549629859|*3|$5|edge2|$8|279.7403|*2|$20|\
             17.24151045083999634|$20|38.78813451624225195|*3|$5|edge1|$8|279.7405|*2|$19|12.7584877610206604|$20|\
             38.78813451624225195",
        ),
        ("geosearch g frommember Palermo byradius 200 km desc count 1", "*1|$7|Catania"),
        ("geosearch g frommember Palermo byradius 200 km count 2", "*2|$7|Palermo|$5|edge1"),
        ("geosearch g frommember Palermo byradius 0 m", "*1|$7|Palermo"),
        ("geosearch g fromlonlat 15 37 byradius 1 m", "*0"),
        ("geosearch nokey frommember a byradius 1 m", "*0"),
        ("georadius g 15 37 200 km asc withdist", "*2|*2|$7|Catania|$7|56.4413|*2|$7|Palermo|$8|190.4424"),
        ("georadius_ro g 15 37 200 km withhash count 1", "*1|*2|$7|Catania|:3479447370796909"),
        ("georadiusbymember g Palermo 100 km asc", "*2|$7|Palermo|$5|edge1"),
        ("georadiusbymember_ro g Palermo 100 km desc", "*2|$5|edge1|$7|Palermo"),
        ("georadiusbymember nokey a x y", "*0"),
        ("set s x", "+OK"),
        ("geosearch s fromlonlat 1 1 byradius 1 nonsense", WRONG_TYPE),
        ("georadius s 1 1 1 m", WRONG_TYPE),
    ]);
}

#[test]
fn options_that_are_refused() {
    check(&[
        SICILY,
        (
            "geosearch g byradius 1 km asc asc",
            "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for geosearch",
        ),
        ("GeoSearch g fromlonlat 1 1 asc asc", "-ERR exactly one of BYRADIUS and BYBOX can be specified for GeoSearch"),
        ("geosearch g fromlonlat 1 1 frommember Palermo byradius 1 km", SYNTAX),
        ("geosearch g frommember Palermo fromlonlat 1 1 byradius 1 km", SYNTAX),
        ("geosearch g fromlonlat 1 1 byradius 1 km bybox 1 1 km", SYNTAX),
        ("geosearch g fromlonlat 1 1 byradius 1 km storedist", SYNTAX),
        ("geosearch g fromlonlat 1 1 byradius 1 km store d", SYNTAX),
        ("geosearch g fromlonlat 1 1 bybox 1 1", SYNTAX),
        ("geosearch g frommember Foo byradius 1 km", NO_MEMBER),
        ("geosearch g fromlonlat 1 1 byradius x km", "-ERR need numeric radius"),
        ("geosearch g fromlonlat 1 1 byradius -1 km", "-ERR radius cannot be negative"),
        ("geosearch g fromlonlat 1 1 byradius 1 parsec", UNIT),
        ("geosearch g fromlonlat 1 1 bybox x 1 km", "-ERR need numeric width"),
        ("geosearch g fromlonlat 1 1 bybox 1 x km", "-ERR need numeric height"),
        ("geosearch g fromlonlat 1 1 bybox 1 -1 km", "-ERR height or width cannot be negative"),
        ("geosearch g fromlonlat 1 1 byradius 1 km any", "-ERR the ANY argument requires COUNT argument"),
        ("geosearch g fromlonlat 1 1 byradius 1 km count 0", "-ERR COUNT must be > 0"),
        ("geosearch g fromlonlat 1 1 byradius 1 km count x", "-ERR value is not an integer or out of range"),
        ("georadius g 1 1 1 km byradius 1 km", SYNTAX),
        ("georadius g 1 1 x km", "-ERR need numeric radius"),
        ("georadius g 1 99 1 km", "-ERR invalid longitude,latitude pair 1.000000,99.000000"),
        (
            "georadius g 1 1 1 km store d withdist",
            "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        (
            "geosearchstore d g fromlonlat 1 1 byradius 1 km withhash",
            "-ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        ("georadius_ro g 1 1 1 km store d", SYNTAX),
        ("georadiusbymember_ro g Palermo 1 km storedist d", SYNTAX),
        ("georadiusbymember g Foo 1 km", NO_MEMBER),
    ]);
}

#[test]
fn polygons() {
    check(&[
        SICILY,
        ("geoadd g 12.75 37.9 edge1 15.5 38.5 out", ":2"),
        ("geosearch g bypolygon 4 12 37 16 37 16 39 12 39 asc", "*4|$7|Palermo|$5|edge1|$7|Catania|$3|out"),
        (
            "geosearch g bypolygon 4 12 37 16 37 16 39 12 39 withdist",
            "*4|*2|$5|edge1|$11|110389.3595|*2|$7|Palermo|$10|56987.4933|*2|$7|Catania|$11|111411.0839|*2|$3|out|$11|\
             141594.0478",
        ),
        ("geosearch g bypolygon 3 13 38 14 39 14 38", "*1|$7|Palermo"),
        ("geosearch g bypolygon 3 12 37 12 37 12 37", "*0"),
        ("geosearch g bypolygon 4 -180 -85 180 -85 180 85 -180 85 ", "*4|$5|edge1|$7|Palermo|$7|Catania|$3|out"),
        ("geosearch g bypolygon 3 12 37 16 37 16 38 bypolygon 3 13 38 14 39 14 38", "*1|$7|Palermo"),
        ("geosearch g bypolygon 2 12 37 16 37", "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"),
        ("geosearch g bypolygon 3 12 37 16 37 16", "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"),
        ("geosearch g bypolygon -3 12 37 16 37 16 38", "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"),
        ("geosearch g bypolygon x 12 37 16 37", "-ERR invalid number of vertices"),
        ("geosearch g bypolygon 99999999999 12 37 16 37", "-ERR invalid number of vertices"),
        ("geosearch g bypolygon 3 12 37 16 37 16 99", "-ERR invalid longitude,latitude pair 16.000000,99.000000"),
        ("geosearch g frommember Palermo bypolygon 3 12 37 16 37 16 38", SYNTAX),
        ("geosearch g bypolygon 3 12 37 16 37 16 38 fromlonlat 1 2", SYNTAX),
        ("geosearch g bypolygon 3 12 37 16 37 16 38 byradius 1 km", SYNTAX),
        ("geosearch g byradius 1 km bypolygon 3 12 37 16 37 16 38", SYNTAX),
        ("geosearchstore d g bypolygon 4 12 37 16 37 16 39 12 39 storedist", ":4"),
        ("zrange d 0 0 withscores", "*2|$7|Palermo|$20|5.698749327453747e+4"),
    ]);
}

#[test]
fn storing() {
    let mut bench = Bench::default();
    bench.check(&[
        SICILY,
        ("geosearchstore d g fromlonlat 15 37 byradius 200 km", ":2"),
        ("zrange d 0 -1 withscores", "*4|$7|Palermo|$16|3479099956230698|$7|Catania|$16|3479447370796909"),
        ("geosearchstore d g fromlonlat 15 37 byradius 200 km count 1 storedist", ":1"),
        ("zrange d 0 -1", "*1|$7|Catania"),
        ("georadius g 15 37 200 km store a store b storedist c", ":2"),
        ("exists a b", ":0"),
        ("zcard c", ":2"),
        ("georadiusbymember g Palermo 1 km store store", ":1"),
        ("zcard store", ":1"),
        ("geosearchstore g g fromlonlat 15 37 byradius 100 km", ":1"),
        ("geosearchstore c nokey fromlonlat 15 37 byradius 100 km", ":0"),
        ("geosearchstore c nokey fromlonlat 15 37 byradius 100 km", ":0"),
        ("georadius g 1 1 1 km store d", ":0"),
        ("exists c d", ":0"),
    ]);
    assert_eq!(
        bench.events(),
        [
            "zadd g",
            "geosearchstore d",
            "geosearchstore d",
            "georadiusstore c",
            "georadiusstore store",
            "geosearchstore g",
            "del c",
            "del d"
        ]
    );
    assert_eq!(bench.effects.dirty, 2 + 2 + 1 + 2 + 1 + 1 + 1 + 1);
}
