//! Searching an area: GEOSEARCH, GEORADIUS, GEORADIUSBYMEMBER and their storing forms.

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

/// The fewest corners of a polygon.
const CORNERS_MIN: usize = 3;

/// What a command's name already says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// GEORADIUS: a circle around coordinates.
    Radius { stores: bool },
    /// GEORADIUSBYMEMBER: a circle around a member.
    RadiusByMember { stores: bool },
    /// GEOSEARCH: all is in the options.
    Search,
    /// GEOSEARCHSTORE: the same, and the result is always stored.
    SearchStore,
}

impl Kind {
    /// The argument that is the key to search.
    fn source(self) -> usize {
        if self == Kind::SearchStore { 2 } else { 1 }
    }

    /// The first argument that is an option.
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

/// The first argument of GEORADIUS that is an option.
const RADIUS_OPTIONS: usize = 6;
/// The first argument of GEORADIUSBYMEMBER that is an option.
const RADIUS_BY_MEMBER_OPTIONS: usize = 5;

/// In which order results are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DistanceOrder {
    /// As they are found.
    Found,
    NearestFirst,
    FarthestFirst,
}

/// Where an area has its centre.
#[derive(Clone, Copy)]
enum Centre {
    Unsaid,
    Coordinates(Point),
    /// At a member; none if the key doesn't exist.
    Member(Option<Point>),
}

/// What an area looks like; the last figure is the metres of its unit.
enum Area {
    Unsaid,
    Circle(f64, f64),
    Box { width: f64, height: f64, metres: f64 },
    Polygon(Vec<Point>),
}

/// A result that is stored.
#[derive(Clone, Copy)]
struct Target {
    /// The argument that is the key.
    arg: usize,
    /// True if distances are the scores.
    distances: bool,
}

/// How a search reads its arguments.
struct GeoQuery {
    centre: Centre,
    area: Area,
    with_distance: bool,
    with_hash: bool,
    with_point: bool,
    order: DistanceOrder,
    /// The most results; all, if 0.
    count: usize,
    /// Whether the search ends with the first `count` results, wherever they are.
    any: bool,
    target: Option<Target>,
}

impl GeoQuery {
    /// Reads the arguments. `source` is the key's sorted set, if it exists.
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
                // As in Redis, the radius isn't looked at without a key.
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

    /// Reads one option; gives the number of its arguments.
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

    /// Reads one of GEOSEARCH's options that say where it searches; gives the number of its arguments. One that comes
    /// again counts; of two that exclude each other, the second is an error.
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

    /// Checks that the options fit together.
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

    /// The area, unless it lies nowhere.
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

    /// The order in which results are wanted. Without one, the nearest of a count are meant.
    fn order(&self) -> DistanceOrder {
        if self.order == DistanceOrder::Found && self.count > 0 && !self.any {
            DistanceOrder::NearestFirst
        } else {
            self.order
        }
    }
}

/// The place of a member, which must be there if the key is.
fn member_of(source: Option<&ZSet>, member: &[u8]) -> Result<Centre, Error> {
    let Some(zset) = source else { return Ok(Centre::Member(None)) };
    let score = zset.score(member).ok_or(NO_MEMBER)?;
    Ok(Centre::Member(Some(point_of(score))))
}

/// The argument at `index` as a length, which must not be negative.
fn length(args: &Args<'_>, index: usize, not_float: Error) -> Result<f64, Error> {
    num::parse_f64(args.get(index)).ok_or(not_float)
}

/// A radius and its unit, from the argument at `index` on.
fn circle(args: &Args<'_>, index: usize) -> Result<Area, Error> {
    let radius = length(args, index, RADIUS_NOT_FLOAT)?;
    if radius < 0.0 {
        return Err(RADIUS_NEGATIVE);
    }
    Ok(Area::Circle(radius, metres_of_unit(args.get(index + 1))?))
}

/// A width, a height and their unit, from the argument at `index` on.
fn box_at(args: &Args<'_>, index: usize) -> Result<Area, Error> {
    let width = length(args, index, WIDTH_NOT_FLOAT)?;
    let height = length(args, index + 1, HEIGHT_NOT_FLOAT)?;
    if width < 0.0 || height < 0.0 {
        return Err(BOX_NEGATIVE);
    }
    Ok(Area::Box { width, height, metres: metres_of_unit(args.get(index + 2))? })
}

/// A number of corners and the corners, from the argument at `index` on.
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

/// The members in an area in the order of its cells, at most `limit`.
fn search<'z>(zset: &'z ZSet, shape: &Shape, limit: usize) -> Vec<FoundMember<'z>> {
    let window = shape.window();
    let mut found = Vec::new();
    let mut last = None;
    for (place, cell) in shape.cells().into_iter().enumerate() {
        // Where few cells go around the earth, two neighbours may be the same.
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
        // As in Redis, one that is the cell in the middle again isn't noticed.
        last = (place > 0).then_some(cell);
    }
    found
}

/// The results in order, without those that are too many. Of equally far ones, the first found comes first.
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
    // The journal has the results: another machine's sines may be others.
    let event = if kind.is_search() { "geosearchstore" } else { "georadiusstore" };
    let count = store_recorded(call, call.key(target.arg), stored, changes, event);
    call.reply.count(count);
    Ok(())
}

/// The key after an option, STORE or STOREDIST, that is looked for from the argument at `first` on. The last one counts.
fn stored_by(args: Args<'_>, first: usize, word: &str) -> Option<usize> {
    let mut found = None;
    let mut at = first;
    while at + 1 < args.len() {
        let is = |word: &str| args.get(at).eq_ignore_ascii_case(word.as_bytes());
        if is(word) {
            found = Some(at + 1);
        }
        // What follows either of them is a key, whatever it looks like.
        at += if is("store") || is("storedist") { 2 } else { 1 };
    }
    found
}

/// Where GEORADIUS has STORE's key.
pub(super) fn store_key(args: Args<'_>) -> Option<usize> {
    stored_by(args, RADIUS_OPTIONS, "store")
}

/// Where GEORADIUS has STOREDIST's key.
pub(super) fn store_distances_key(args: Args<'_>) -> Option<usize> {
    stored_by(args, RADIUS_OPTIONS, "storedist")
}

/// Where GEORADIUSBYMEMBER has STORE's key.
pub(super) fn store_key_by_member(args: Args<'_>) -> Option<usize> {
    stored_by(args, RADIUS_BY_MEMBER_OPTIONS, "store")
}

/// Where GEORADIUSBYMEMBER has STOREDIST's key.
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
