//! GEOADD, GEOSEARCH and the other commands on geographical indexes. An index is a sorted set; a member's score is the
//! geohash of its longitude and latitude.
//!
//! Source of the semantics: Redis's command pages of the group "geo"; BYPOLYGON comes from Valkey. Replies equal Redis
//! 7.2's to the last digit, and unsorted results have its order.

mod cell;
mod earth;
mod search;
mod shape;
#[cfg(test)]
mod tests;

use resp::num::{self, FixedText};
use resp::request::Args;
use store::types::zset::ZSet;
use store::value::Type;

use cell::{LATITUDE_MAX, LONGITUDE_MAX, Point, geohash, point_of, score_of};

use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::items::ItemsAhead;
use crate::spec::flag::{DENYOOM, MOVABLEKEYS, READONLY, WRITE};
use crate::spec::key_flag::{ACCESS, OW, RO, RW, UPDATE};
use crate::spec::{Group, KeySpec, On, Spec};
use crate::zsets::{Added, Flags, add_one, reply_each_score};
use crate::{Call, Handler};

const SEARCH_TIME: &str = "O(N+log(M)), where N is the number of members in the cells around the area and M the number \
                           of all members";

/// The family's entries.
pub const COMMANDS: &[Spec<Handler>] = &On(Type::ZSet).entries([
    Spec::new("geoadd", -5, WRITE | DENYOOM, geoadd as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .items(4, 3)
        .docs(
            Group::Geo,
            "3.2.0",
            "O(log(N)) for each member, where N is the number of members",
            "Adds members to a geographical index, or moves them.",
            "key [NX | XX]:condition@6.2.0 [CH:change@6.2.0] longitude:double latitude:double member \
             [longitude:double latitude:double member ...]",
        )
        .history(&[("6.2.0", "`CH`, `NX` and `XX`.")]),
    Spec::new("geodist", -4, READONLY, geodist as Handler).keys(&[KeySpec::at(1, RO | ACCESS)]).items(2, 1).docs(
        Group::Geo,
        "3.2.0",
        "O(1)",
        "Returns the distance between two members.",
        "key member1 member2 [M | KM | FT | MI]:unit",
    ),
    Spec::new("geohash", -2, READONLY, geohashes as Handler).keys(&[KeySpec::at(1, RO | ACCESS)]).items(2, 1).docs(
        Group::Geo,
        "3.2.0",
        "O(N), where N is the number of requested members",
        "Returns the positions of members as geohashes.",
        "key [member [member ...]]",
    ),
    Spec::new("geopos", -2, READONLY, geopos as Handler).keys(&[KeySpec::at(1, RO | ACCESS)]).items(2, 1).docs(
        Group::Geo,
        "3.2.0",
        "O(N), where N is the number of requested members",
        "Returns the longitudes and latitudes of members.",
        "key [member [member ...]]",
    ),
    Spec::new("georadius", -6, WRITE | DENYOOM | MOVABLEKEYS, search::georadius as Handler)
        .keys(&[
            KeySpec::at(1, RO | ACCESS),
            KeySpec::option("STORE", 6, OW | UPDATE, search::store_key),
            KeySpec::option("STOREDIST", 6, OW | UPDATE, search::store_distances_key),
        ])
        .docs(
            Group::Geo,
            "3.2.0",
            SEARCH_TIME,
            "Returns the members within a distance from a point, or stores them in a key.",
            "key longitude:double latitude:double radius:double <M | KM | FT | MI>:unit [WITHCOORD] [WITHDIST] \
             [WITHHASH] [COUNT:count-block count:integer [ANY@6.2.0]] [ASC | DESC]:order [STORE key | STOREDIST \
             key]:store",
        )
        .history(&[("6.2.0", "`ANY` with `COUNT`."), ("7.0.0", "Units in upper case.")])
        .deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument"),
    Spec::new("georadius_ro", -6, READONLY, search::georadius_ro as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Geo,
            "3.2.10",
            SEARCH_TIME,
            "Returns the members within a distance from a point.",
            "key longitude:double latitude:double radius:double <M | KM | FT | MI>:unit [WITHCOORD] [WITHDIST] \
             [WITHHASH] [COUNT:count-block count:integer [ANY@6.2.0]] [ASC | DESC]:order",
        )
        .history(&[("6.2.0", "`ANY` with `COUNT`."), ("7.0.0", "Units in upper case.")])
        .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument"),
    Spec::new("georadiusbymember", -5, WRITE | DENYOOM | MOVABLEKEYS, search::georadiusbymember as Handler)
        .keys(&[
            KeySpec::at(1, RO | ACCESS),
            KeySpec::option("STORE", 5, OW | UPDATE, search::store_key_by_member),
            KeySpec::option("STOREDIST", 5, OW | UPDATE, search::store_distances_key_by_member),
        ])
        .docs(
            Group::Geo,
            "3.2.0",
            SEARCH_TIME,
            "Returns the members within a distance from a member, or stores them in a key.",
            "key member radius:double <M | KM | FT | MI>:unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT:count-block \
             count:integer [ANY]] [ASC | DESC]:order [STORE key | STOREDIST key]:store",
        )
        .history(&[("6.2.0", "`ANY` with `COUNT`."), ("7.0.0", "Units in upper case.")])
        .deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments"),
    Spec::new("georadiusbymember_ro", -5, READONLY, search::georadiusbymember_ro as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Geo,
            "3.2.10",
            SEARCH_TIME,
            "Returns the members within a distance from a member.",
            "key member radius:double <M | KM | FT | MI>:unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT:count-block \
             count:integer [ANY]] [ASC | DESC]:order",
        )
        .history(&[("6.2.0", "`ANY` with `COUNT`."), ("7.0.0", "Units in upper case.")])
        .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments"),
    Spec::new("geosearch", -7, READONLY, search::geosearch as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Geo,
            "6.2.0",
            SEARCH_TIME,
            "Returns the members within a circle, a box or a polygon.",
            "key <FROMMEMBER member | FROMLONLAT longitude:double latitude:double>:from <BYRADIUS:circle \
             radius:double <M | KM | FT | MI>:unit | BYBOX:box width:double height:double <M | KM | FT | MI>:unit | \
             BYPOLYGON:polygon@9.0.0 num-vertices:integer longitude:double latitude:double [longitude:double \
             latitude:double ...]:vertices>:by [ASC | DESC]:order [COUNT:count-block count:integer [ANY]] \
             [WITHCOORD] [WITHDIST] [WITHHASH]",
        )
        .history(&[("7.0.0", "Units in upper case."), ("9.0.0", "`BYPOLYGON`, in Valkey.")]),
    Spec::new("geosearchstore", -8, WRITE | DENYOOM, search::geosearchstore as Handler)
        .keys(&[KeySpec::at(1, OW | UPDATE), KeySpec::at(2, RO | ACCESS)])
        .docs(
            Group::Geo,
            "6.2.0",
            SEARCH_TIME,
            "Stores the members within a circle, a box or a polygon in a key.",
            "destination source <FROMMEMBER member | FROMLONLAT longitude:double latitude:double>:from \
             <BYRADIUS:circle radius:double <M | KM | FT | MI>:unit | BYBOX:box width:double height:double <M | KM | \
             FT | MI>:unit | BYPOLYGON:polygon@9.0.0 num-vertices:integer longitude:double latitude:double \
             [longitude:double latitude:double ...]:vertices>:by [ASC | DESC]:order [COUNT:count-block count:integer \
             [ANY]] [STOREDIST]",
        )
        .history(&[("7.0.0", "Units in upper case."), ("9.0.0", "`BYPOLYGON`, in Valkey.")]),
]);

/// Parses a longitude and a latitude, from the argument at `index` on.
fn point_at(args: &Args<'_>, index: usize) -> Result<Point, Error> {
    let degrees = |index: usize| num::parse_f64(args.get(index)).ok_or(Error::NOT_FLOAT);
    let point = Point { longitude: degrees(index)?, latitude: degrees(index + 1)? };
    if point.longitude.abs() > LONGITUDE_MAX || point.latitude.abs() > LATITUDE_MAX {
        let Point { longitude, latitude } = point;
        return Err(Error::new(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")));
    }
    Ok(point)
}

/// Parses GEOADD's options and returns them with the index of the first longitude.
fn flags(call: &Call<'_, '_, '_>) -> Result<(Flags, usize), Error> {
    let mut flags = Flags::default();
    let mut first = 2;
    while first < call.len() {
        let option = match call.arg(first) {
            [b'0'..=b'9', ..] => break,
            word if word.eq_ignore_ascii_case(b"nx") => &mut flags.nx,
            word if word.eq_ignore_ascii_case(b"xx") => &mut flags.xx,
            word if word.eq_ignore_ascii_case(b"ch") => &mut flags.changed,
            _ => break,
        };
        *option = true;
        first += 1;
    }
    let left = call.len() - first;
    if left == 0 || !left.is_multiple_of(3) || (flags.nx && flags.xx) {
        return Err(Error::SYNTAX);
    }
    Ok((flags, first))
}

fn geoadd(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (flags, first) = flags(call)?;
    // All points are parsed before any change. The common case of one point needs no allocation.
    let args = call.args;
    let score = |index: usize| point_at(args, index).map(score_of);
    let first_score = score(first)?;
    let other_scores = (first + 3..call.len()).step_by(3).map(score).collect::<Result<Vec<_>, _>>()?;
    let key = call.key(1);
    if flags.xx && call.db.object_mut::<ZSet>(key)?.is_none() {
        call.reply.int(0);
        return Ok(());
    }
    let limits = call.rules.zset;
    let zset = call.db.object_or_new::<ZSet>(key)?;
    if zset.is_empty() {
        zset.prepare(1 + other_scores.len(), args.get(first + 2).len(), limits);
    }
    let (mut added, mut updated) = (0, 0);
    let mut ahead = ItemsAhead::<3>::new(args.len(), first + 2);
    for (index, score) in std::iter::once(first_score).chain(other_scores).enumerate() {
        ahead.before_next(args, |item| zset.prefetch(item));
        match add_one(zset, args.get(first + 2 + 3 * index), score, flags, limits)? {
            Added::New(_) => added += 1,
            Added::Updated(_) => updated += 1,
            Added::Same(_) | Added::Refused => {}
        }
    }
    if added + updated > 0 {
        call.changed_by(added + updated, key, Class::ZSet, "zadd");
    }
    call.reply.count(if flags.changed { added + updated } else { added });
    Ok(())
}

fn geodist(call: &mut Call<'_, '_, '_>) -> Outcome {
    let metres = match call.len() {
        4 => 1.0,
        5 => earth::metres_of_unit(call.arg(4))?,
        _ => return Err(Error::SYNTAX),
    };
    let zset = call.db.object::<ZSet>(call.key(1))?;
    let point = |index: usize| zset.and_then(|zset| zset.score(call.args.get(index))).map(point_of);
    match point(2).zip(point(3)) {
        Some((a, b)) => call.reply.bulk(FixedText::four_places(earth::distance_m(a, b) / metres).as_bytes()),
        None => call.reply.null(),
    }
    Ok(())
}

fn geohashes(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_each_score(call, |reply, score| reply.bulk_or_null(score.map(geohash)))
}

fn geopos(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_each_score(call, |reply, score| match score {
        Some(score) => search::write_point(reply, point_of(score)),
        None => reply.null_array(),
    })
}
