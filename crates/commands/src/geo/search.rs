//! Searches of an area: GEOSEARCH, GEORADIUS, GEORADIUSBYMEMBER and their storing variants.

use resp::num::{self, FixedText};
use resp::reply::Reply;
use resp::request::Args;
use store::types::packed::ItemText;
use store::types::zset::ZSet;

use super::cell::{Point, point_of};
use super::earth::metres_of_unit;
use super::point_at;
use super::shape::{Outline, Shape};
use crate::Call;
use crate::error::{Error, Outcome};
use crate::zsets::store_recorded;

const NO_MEMBER: Error = Error::fixed("ERR could not decode requested zset member");
const RADIUS_NOT_FLOAT: Error = Error::fixed("ERR need numeric radius");
const RADIUS_NEGATIVE: Error = Error::fixed("ERR radius cannot be negative");
const WIDTH_NOT_FLOAT: Error = Error::fixed("ERR need numeric width");
const HEIGHT_NOT_FLOAT: Error = Error::fixed("ERR need numeric height");
const BOX_NEGATIVE: Error = Error::fixed("ERR height or width cannot be negative");
const CORNERS_NOT_INTEGER: Error = Error::fixed("ERR invalid number of vertices");
const TOO_FEW_CORNERS: Error = Error::fixed("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices");
const COUNT_NOT_POSITIVE: Error = Error::fixed("ERR COUNT must be > 0");
const ANY_NEEDS_COUNT: Error = Error::fixed("ERR the ANY argument requires COUNT argument");

/// Smallest number of vertices of a polygon.
const CORNERS_MIN: usize = 3;

/// The command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// GEORADIUS: a circle around coordinates.
    Radius { stores: bool },
    /// GEORADIUSBYMEMBER: a circle around a member.
    RadiusByMember { stores: bool },
    /// GEOSEARCH: options give the centre and the shape.
    Search,
    /// GEOSEARCHSTORE: like GEOSEARCH, but always stores the result.
    SearchStore,
}

impl Kind {
    /// Index of the key to search.
    fn source(self) -> usize {
        if self == Kind::SearchStore { 2 } else { 1 }
    }

    /// Index of the first option.
    fn first_option(self) -> usize {
        match self {
            Kind::Radius { .. } => RADIUS_OPTIONS,
            Kind::RadiusByMember { .. } => RADIUS_BY_MEMBER_OPTIONS,
            Kind::Search => 2,
            Kind::SearchStore => 3,
        }
    }

    fn is_search(self) -> bool {
        matches!(self, Kind::Search | Kind::SearchStore)
    }

    /// True if STORE and STOREDIST with a key are among its options.
    fn takes_store(self) -> bool {
        matches!(self, Kind::Radius { stores: true } | Kind::RadiusByMember { stores: true })
    }
}

/// Index of GEORADIUS's first option.
const RADIUS_OPTIONS: usize = 6;
/// Index of GEORADIUSBYMEMBER's first option.
const RADIUS_BY_MEMBER_OPTIONS: usize = 5;

/// Order of results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DistanceOrder {
    /// Order of discovery.
    Found,
    NearestFirst,
    FarthestFirst,
}

/// Centre of an area.
#[derive(Clone, Copy)]
enum Centre {
    Unsaid,
    Coordinates(Point),
    /// The position of a member; none if the key doesn't exist.
    Member(Option<Point>),
}

/// Shape of an area; the last number is the metres of its unit.
enum Area {
    Unsaid,
    Circle(f64, f64),
    Box { width: f64, height: f64, metres: f64 },
    Polygon(Vec<Point>),
}

/// Destination for storing the result.
#[derive(Clone, Copy)]
struct Target {
    /// Index of the destination key.
    arg: usize,
    /// True if distances become the scores.
    distances: bool,
}

/// Parsed arguments of a search.
struct GeoQuery {
    centre: Centre,
    area: Area,
    with_distance: bool,
    with_hash: bool,
    with_point: bool,
    order: DistanceOrder,
    /// Largest number of results; 0 means all.
    count: usize,
    /// True if the search ends after the first `count` results of any distance.
    any: bool,
    target: Option<Target>,
}

impl GeoQuery {
    /// Parses the arguments. `source` is the key's sorted set, if it exists.
    fn read(args: &Args<'_>, kind: Kind, source: Option<&ZSet>) -> Result<GeoQuery, Error> {
        let mut query = GeoQuery {
            centre: Centre::Unsaid,
            area: Area::Unsaid,
            with_distance: false,
            with_hash: false,
            with_point: false,
            order: DistanceOrder::Found,
            count: 0,
            any: false,
            target: (kind == Kind::SearchStore).then_some(Target { arg: 1, distances: false }),
        };
        match kind {
            Kind::Radius { .. } => {
                query.centre = Centre::Coordinates(point_at(args, 2)?);
                query.area = circle(args, RADIUS_OPTIONS - 2)?;
            }
            Kind::RadiusByMember { .. } => {
                query.centre = member_of(source, args.get(2))?;
                // As in Redis, the radius isn't parsed if the key is missing.
                if source.is_some() {
                    query.area = circle(args, RADIUS_BY_MEMBER_OPTIONS - 2)?;
                }
            }
            Kind::Search | Kind::SearchStore => {}
        }
        let mut at = kind.first_option();
        while at < args.len() {
            at += query.read_option(args, at, kind, source)?;
        }
        query.check(args, kind)?;
        Ok(query)
    }

    /// Parses one option and returns the number of its arguments.
    fn read_option(&mut self, args: &Args<'_>, at: usize, kind: Kind, source: Option<&ZSet>) -> Result<usize, Error> {
        let is = |word: &str| args.get(at).eq_ignore_ascii_case(word.as_bytes());
        let has_next = at + 1 < args.len();
        match () {
            () if is("withdist") => self.with_distance = true,
            () if is("withhash") => self.with_hash = true,
            () if is("withcoord") => self.with_point = true,
            () if is("any") => self.any = true,
            () if is("asc") => self.order = DistanceOrder::NearestFirst,
            () if is("desc") => self.order = DistanceOrder::FarthestFirst,
            () if is("count") && has_next => {
                let count = num::parse_i64(args.get(at + 1)).ok_or(Error::NOT_INTEGER)?;
                self.count = usize::try_from(count).ok().filter(|&count| count > 0).ok_or(COUNT_NOT_POSITIVE)?;
                return Ok(2);
            }
            () if kind.takes_store() && has_next && (is("store") || is("storedist")) => {
                self.target = Some(Target { arg: at + 1, distances: is("storedist") });
                return Ok(2);
            }
            () if kind == Kind::SearchStore && is("storedist") => {
                self.target = Some(Target { arg: 1, distances: true });
            }
            () if kind.is_search() => return self.read_area(args, at, source),
            () => return Err(Error::SYNTAX),
        }
        Ok(1)
    }

    /// Parses one of GEOSEARCH's options for the centre or shape and returns the number of its arguments. A repeated
    /// option replaces the earlier one; a second option that excludes the first is an error.
    fn read_area(&mut self, args: &Args<'_>, at: usize, source: Option<&ZSet>) -> Result<usize, Error> {
        let is = |word: &str, more: usize| args.get(at).eq_ignore_ascii_case(word.as_bytes()) && at + more < args.len();
        match (self.centre, &self.area) {
            (_, Area::Polygon(_)) if !is("bypolygon", 2) => Err(Error::SYNTAX),
            (Centre::Unsaid | Centre::Member(_), _) if is("frommember", 1) => {
                self.centre = member_of(source, args.get(at + 1))?;
                Ok(2)
            }
            (Centre::Unsaid | Centre::Coordinates(_), _) if is("fromlonlat", 2) => {
                self.centre = Centre::Coordinates(point_at(args, at + 1)?);
                Ok(3)
            }
            (_, Area::Unsaid | Area::Circle(..)) if is("byradius", 2) => {
                self.area = circle(args, at + 1)?;
                Ok(3)
            }
            (_, Area::Unsaid | Area::Box { .. }) if is("bybox", 3) => {
                self.area = box_at(args, at + 1)?;
                Ok(4)
            }
            (Centre::Unsaid, Area::Unsaid | Area::Polygon(_)) if is("bypolygon", 2) => {
                let corners = corners_at(args, at + 1)?;
                let words = 2 + 2 * corners.len();
                self.area = Area::Polygon(corners);
                Ok(words)
            }
            _ => Err(Error::SYNTAX),
        }
    }

    /// Checks that the options are consistent.
    fn check(&self, args: &Args<'_>, kind: Kind) -> Outcome {
        if self.target.is_some() && (self.with_distance || self.with_hash || self.with_point) {
            let what = if kind == Kind::SearchStore { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(Error::new(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        if kind.is_search() {
            let missing = match (self.centre, &self.area) {
                (_, Area::Polygon(_)) => None,
                (Centre::Unsaid, _) => Some("FROMMEMBER or FROMLONLAT"),
                (_, Area::Unsaid) => Some("BYRADIUS and BYBOX"),
                _ => None,
            };
            if let Some(missing) = missing {
                let text = format!("ERR exactly one of {missing} can be specified for ");
                return Err(Error::quoting([text.as_bytes(), args.get(0)].concat()));
            }
        }
        if self.any && self.count == 0 { Err(ANY_NEEDS_COUNT) } else { Ok(()) }
    }

    /// The area; none if its centre is a member of a missing key.
    fn shape(&mut self) -> Option<Shape> {
        let centre = match self.centre {
            Centre::Coordinates(point) => Some(point),
            Centre::Member(point) => point,
            Centre::Unsaid => None,
        };
        Some(match std::mem::replace(&mut self.area, Area::Unsaid) {
            Area::Unsaid => return None,
            Area::Circle(radius, metres) => Shape::around(centre?, Outline::Circle { radius }, metres),
            Area::Box { width, height, metres } => Shape::around(centre?, Outline::Box { width, height }, metres),
            Area::Polygon(corners) => Shape::polygon(corners),
        })
    }

    /// The effective order of results. COUNT without an order selects the nearest results.
    fn order(&self) -> DistanceOrder {
        if self.order == DistanceOrder::Found && self.count > 0 && !self.any {
            DistanceOrder::NearestFirst
        } else {
            self.order
        }
    }
}

/// Returns the position of a member, which must exist if the key exists.
fn member_of(source: Option<&ZSet>, member: &[u8]) -> Result<Centre, Error> {
    let Some(zset) = source else { return Ok(Centre::Member(None)) };
    let score = zset.score(member).ok_or(NO_MEMBER)?;
    Ok(Centre::Member(Some(point_of(score))))
}

/// Parses the argument at `index` as a length, which must not be negative.
fn length(args: &Args<'_>, index: usize, not_float: Error) -> Result<f64, Error> {
    num::parse_f64(args.get(index)).ok_or(not_float)
}

/// Parses a radius and its unit, from the argument at `index` on.
fn circle(args: &Args<'_>, index: usize) -> Result<Area, Error> {
    let radius = length(args, index, RADIUS_NOT_FLOAT)?;
    if radius < 0.0 {
        return Err(RADIUS_NEGATIVE);
    }
    Ok(Area::Circle(radius, metres_of_unit(args.get(index + 1))?))
}

/// Parses a width, a height and their unit, from the argument at `index` on.
fn box_at(args: &Args<'_>, index: usize) -> Result<Area, Error> {
    let width = length(args, index, WIDTH_NOT_FLOAT)?;
    let height = length(args, index + 1, HEIGHT_NOT_FLOAT)?;
    if width < 0.0 || height < 0.0 {
        return Err(BOX_NEGATIVE);
    }
    Ok(Area::Box { width, height, metres: metres_of_unit(args.get(index + 2))? })
}

/// Parses a number of vertices and the vertices, from the argument at `index` on.
fn corners_at(args: &Args<'_>, index: usize) -> Result<Vec<Point>, Error> {
    let count = num::parse_i64(args.get(index)).and_then(|count| i32::try_from(count).ok());
    let count = usize::try_from(count.ok_or(CORNERS_NOT_INTEGER)?).unwrap_or(0);
    if count < CORNERS_MIN || (args.len() - index - 1) / 2 < count {
        return Err(TOO_FEW_CORNERS);
    }
    (0..count).map(|corner| point_at(args, index + 1 + 2 * corner)).collect()
}

/// A member in the area.
struct FoundMember<'z> {
    member: ItemText<'z>,
    score: f64,
    point: Point,
    distance_m: f64,
}

/// Finds the members in an area in the order of its cells, at most `limit`.
fn search<'z>(zset: &'z ZSet, shape: &Shape, limit: usize) -> Vec<FoundMember<'z>> {
    let window = shape.window();
    let mut found = Vec::new();
    let mut last = None;
    for (place, cell) in shape.cells().into_iter().enumerate() {
        // Two neighbours may be the same cell if only few cells span the globe.
        let Some(cell) = cell.filter(|&cell| last != Some(cell)) else { continue };
        let (min, max) = cell.scores();
        let visit = |member, score| {
            let point = point_of(score);
            if let Some(distance_m) = shape.distance_m(point) {
                found.push(FoundMember { member, score, point, distance_m });
            }
            found.len() < limit
        };
        if !zset.visit_wanted(min, max, |score| window.may_hold(score), visit) {
            break;
        }
        // As in Redis, a duplicate of the centre cell isn't detected.
        last = (place > 0).then_some(cell);
    }
    found
}

/// Sorts the results and drops those beyond the count. Equal distances keep the order of discovery.
fn arranged<'f, 'z>(found: &'f [FoundMember<'z>], order: DistanceOrder, count: usize) -> Vec<&'f FoundMember<'z>> {
    let count = if count == 0 { found.len() } else { count.min(found.len()) };
    if order == DistanceOrder::Found {
        return found[..count].iter().collect();
    }
    let sign = if order == DistanceOrder::FarthestFirst { -1.0 } else { 1.0 };
    let mut keys: Vec<(f64, usize)> = found.iter().map(|f| sign * f.distance_m).zip(0..).collect();
    let compare = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    if count < keys.len() {
        keys.select_nth_unstable_by(count, compare);
        keys.truncate(count);
    }
    keys.sort_unstable_by(compare);
    keys.iter().map(|&(_, index)| &found[index]).collect()
}

impl GeoQuery {
    /// Writes a result.
    fn write(&self, reply: &mut Reply<'_>, found: &FoundMember<'_>, metres: f64) {
        let parts = [self.with_distance, self.with_hash, self.with_point].into_iter().filter(|&part| part).count();
        if parts > 0 {
            reply.array(1 + parts);
        }
        reply.bulk(&*found.member);
        if self.with_distance {
            reply.bulk(FixedText::four_places(found.distance_m / metres).as_bytes());
        }
        if self.with_hash {
            reply.int(found.score as i64);
        }
        if self.with_point {
            write_point(reply, found.point);
        }
    }
}

/// Writes a point as a pair.
pub(super) fn write_point(reply: &mut Reply<'_>, point: Point) {
    reply.array(2);
    reply.long_double(point.longitude);
    reply.long_double(point.latitude);
}

fn run(call: &mut Call<'_, '_, '_>, kind: Kind) -> Outcome {
    let limits = call.rules.zset;
    let source = call.db.object::<ZSet>(call.key(kind.source()))?;
    let mut query = GeoQuery::read(call.args, kind, source)?;
    let (shape, order) = (query.shape(), query.order());
    let limit = if query.any { query.count } else { usize::MAX };
    let found = source.zip(shape.as_ref()).map_or_else(Vec::new, |(zset, shape)| search(zset, shape, limit));
    let (results, metres) = (arranged(&found, order, query.count), shape.as_ref().map_or(1.0, Shape::metres));
    let Some(target) = query.target else {
        call.reply.array(results.len());
        results.iter().for_each(|found| query.write(&mut call.reply, found, metres));
        return Ok(());
    };
    let score = |found: &FoundMember<'_>| if target.distances { found.distance_m / metres } else { found.score };
    let stored = ZSet::from_pairs(results.iter().map(|found| (&*found.member, score(found))), limits);
    let changes = stored.len();
    // The journal gets the results, since another machine may compute different sines.
    let event = if kind.is_search() { "geosearchstore" } else { "georadiusstore" };
    let count = store_recorded(call, call.key(target.arg), stored, changes, event);
    call.reply.count(count);
    Ok(())
}

/// Finds the key after the option STORE or STOREDIST, from the argument at `first` on. The last occurrence counts.
fn stored_by(args: Args<'_>, first: usize, word: &str) -> Option<usize> {
    let mut found = None;
    let mut at = first;
    while at + 1 < args.len() {
        let is = |word: &str| args.get(at).eq_ignore_ascii_case(word.as_bytes());
        if is(word) {
            found = Some(at + 1);
        }
        // The argument after either option is always a key.
        at += if is("store") || is("storedist") { 2 } else { 1 };
    }
    found
}

/// Position of GEORADIUS's STORE key.
pub(super) fn store_key(args: Args<'_>) -> Option<usize> {
    stored_by(args, RADIUS_OPTIONS, "store")
}

/// Position of GEORADIUS's STOREDIST key.
pub(super) fn store_distances_key(args: Args<'_>) -> Option<usize> {
    stored_by(args, RADIUS_OPTIONS, "storedist")
}

/// Position of GEORADIUSBYMEMBER's STORE key.
pub(super) fn store_key_by_member(args: Args<'_>) -> Option<usize> {
    stored_by(args, RADIUS_BY_MEMBER_OPTIONS, "store")
}

/// Position of GEORADIUSBYMEMBER's STOREDIST key.
pub(super) fn store_distances_key_by_member(args: Args<'_>) -> Option<usize> {
    stored_by(args, RADIUS_BY_MEMBER_OPTIONS, "storedist")
}

pub(super) fn geosearch(call: &mut Call<'_, '_, '_>) -> Outcome {
    run(call, Kind::Search)
}

pub(super) fn geosearchstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    run(call, Kind::SearchStore)
}

pub(super) fn georadius(call: &mut Call<'_, '_, '_>) -> Outcome {
    run(call, Kind::Radius { stores: true })
}

pub(super) fn georadius_ro(call: &mut Call<'_, '_, '_>) -> Outcome {
    run(call, Kind::Radius { stores: false })
}

pub(super) fn georadiusbymember(call: &mut Call<'_, '_, '_>) -> Outcome {
    run(call, Kind::RadiusByMember { stores: true })
}

pub(super) fn georadiusbymember_ro(call: &mut Call<'_, '_, '_>) -> Outcome {
    run(call, Kind::RadiusByMember { stores: false })
}
