//! The grid of geohash cells: conversion between points and scores, and the neighbours of a cell.
//!
//! A cell of `steps` halvings has a column and a row of `steps` bits each. The bits are interleaved: the column's bits
//! are the odd ones, so the highest bit halves the longitudes first. A member's score is the number of its cell of 26
//! steps. The scores of all members in a larger cell begin with that cell's bits and form one range.
//!
//! The arithmetic follows Redis's order of operations, so that every bit of the results is the same.

/// The highest longitude, in degrees.
pub const LONGITUDE_MAX: f64 = 180.0;
/// The highest latitude of the grid, in degrees (EPSG:3857).
pub const LATITUDE_MAX: f64 = 85.05112878;
/// The highest latitude of the geohashes that GEOHASH prints.
const LATITUDE_MAX_STANDARD: f64 = 90.0;
/// Number of halvings of the smallest cells in each direction.
pub const STEPS_MAX: u32 = 26;
/// Number of characters of GEOHASH's replies. No bits remain for the last character, which is always a zero.
pub const GEOHASH_LEN: usize = 11;

/// The bits of columns.
const COLUMN_BITS: u64 = 0xaaaa_aaaa_aaaa_aaaa;
/// The bits of rows.
const ROW_BITS: u64 = 0x5555_5555_5555_5555;

/// A point, in degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// To the east.
    pub longitude: f64,
    /// To the north.
    pub latitude: f64,
}

/// The edges of an area, in degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Edges {
    pub west: f64,
    pub south: f64,
    pub east: f64,
    pub north: f64,
}

/// Spreads 32 bits over the even bits of 64. See Sean Anderson, "Bit Twiddling Hacks", "Interleave bits by Binary Magic
/// Numbers".
fn spread(bits: u32) -> u64 {
    let mut x = u64::from(bits);
    x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    x = (x | x << 2) & 0x3333_3333_3333_3333;
    (x | x << 1) & ROW_BITS
}

/// Collects the even bits: the inverse of [`spread`].
#[inline]
fn gather(bits: u64) -> u32 {
    let mut x = bits & ROW_BITS;
    x = (x | x >> 1) & 0x3333_3333_3333_3333;
    x = (x | x >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    x = (x | x >> 4) & 0x00ff_00ff_00ff_00ff;
    x = (x | x >> 8) & 0x0000_ffff_0000_ffff;
    (x | x >> 16) as u32
}

/// Returns the index of the part that contains `value`, if the range from `-max` to `max` is divided into 2^`steps`
/// parts. As in Redis, `max` itself yields one more than the last index.
fn part_of(value: f64, max: f64, steps: u32) -> u32 {
    let offset = (value - -max) / (max - -max);
    (offset * (1u64 << steps) as f64) as u32
}

/// Returns the ends of a part.
#[inline]
fn ends_of(part: u32, max: f64, steps: u32) -> (f64, f64) {
    let (parts, scale) = ((1u64 << steps) as f64, max - -max);
    let at = |part: u32| -max + (f64::from(part) / parts) * scale;
    // The index has 32 bits, as in Redis, and wraps around.
    (at(part), at(part.wrapping_add(1)))
}

/// A cell of the grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    bits: u64,
    steps: u32,
}

/// Direction of a move along a column or row of cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// West or south.
    Down,
    /// Not at all.
    Stay,
    /// East or north.
    Up,
}

impl Cell {
    /// Returns the cell of `steps` halvings that contains a point. The point must be within the grid.
    pub fn of(point: Point, steps: u32) -> Cell {
        let column = part_of(point.longitude, LONGITUDE_MAX, steps);
        let row = part_of(point.latitude, LATITUDE_MAX, steps);
        Cell { bits: spread(column) << 1 | spread(row), steps }
    }

    /// Its edges.
    pub fn edges(self) -> Edges {
        let (west, east) = ends_of(gather(self.bits >> 1), LONGITUDE_MAX, self.steps);
        let (south, north) = ends_of(gather(self.bits), LATITUDE_MAX, self.steps);
        Edges { west, south, east, north }
    }

    /// Returns a neighbouring cell: `column` moves west or east, `row` moves south or north. The grid wraps around.
    pub fn neighbour(self, column: Move, row: Move) -> Cell {
        let columns = moved(self.bits & COLUMN_BITS, column, COLUMN_BITS, ROW_BITS, self.steps);
        let rows = moved(self.bits & ROW_BITS, row, ROW_BITS, COLUMN_BITS, self.steps);
        Cell { bits: columns | rows, ..self }
    }

    /// Scores of the members in the cell, as a half-open range.
    pub fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEPS_MAX - self.steps);
        ((self.bits << shift) as f64, ((self.bits + 1) << shift) as f64)
    }
}

/// Adds one to, or subtracts one from, the bits of a column or row. The bits are at `own`; the bits at `gaps` lie
/// between them and pass a carry on.
fn moved(bits: u64, to: Move, own: u64, gaps: u64, steps: u32) -> u64 {
    let unused = 64 - 2 * steps;
    let gaps = gaps >> unused;
    let result = match to {
        // An unmoved coordinate keeps a bit beyond its last one, as in Redis.
        Move::Stay => return bits,
        Move::Up => bits.wrapping_add(gaps + 1),
        Move::Down => (bits | gaps).wrapping_sub(gaps + 1),
    };
    result & (own >> unused)
}

/// The score of a member at this point, which must be within the grid.
pub fn score_of(point: Point) -> f64 {
    Cell::of(point, STEPS_MAX).bits as f64
}

/// Returns the cell number that a score stands for. ZADD may have stored any score; scores that belong to no point are
/// converted like the x86-64 code of Redis converts them.
#[inline]
pub fn bits_of_score(score: f64) -> u64 {
    const BEYOND: f64 = (1u128 << 64) as f64;
    if score < 0.0 {
        score as i64 as u64
    } else if score < BEYOND {
        score as u64
    } else {
        0
    }
}

/// The column and the row of a score's cell.
#[inline]
pub fn column_and_row(bits: u64) -> (u32, u32) {
    (gather(bits >> 1), gather(bits))
}

/// The centre of a score's cell.
#[inline]
pub fn point_of(score: f64) -> Point {
    let edges = Cell { bits: bits_of_score(score), steps: STEPS_MAX }.edges();
    Point {
        longitude: ((edges.west + edges.east) / 2.0).clamp(-LONGITUDE_MAX, LONGITUDE_MAX),
        latitude: ((edges.south + edges.north) / 2.0).clamp(-LATITUDE_MAX, LATITUDE_MAX),
    }
}

/// The standard geohash of a score's point; its grid extends from pole to pole.
pub fn geohash(score: f64) -> [u8; GEOHASH_LEN] {
    const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    let point = point_of(score);
    let column = part_of(point.longitude, LONGITUDE_MAX, STEPS_MAX);
    let row = part_of(point.latitude, LATITUDE_MAX_STANDARD, STEPS_MAX);
    let bits = spread(column) << 1 | spread(row);
    let mut text = [ALPHABET[0]; GEOHASH_LEN];
    for (at, character) in text[..GEOHASH_LEN - 1].iter_mut().enumerate() {
        *character = ALPHABET[(bits >> (2 * STEPS_MAX as usize - 5 * (at + 1)) & 31) as usize];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PALERMO: Point = Point { longitude: 13.361389, latitude: 38.115556 };

    #[test]
    fn bits_are_spread_and_gathered() {
        for bits in [0, 1, 2, 0xffff_ffff, 0x1234_5678, 1 << 26] {
            assert_eq!(gather(spread(bits)), bits);
            assert_eq!(spread(bits) & !ROW_BITS, 0);
        }
        assert_eq!(spread(0b1011), 0b100_0101);
    }

    /// Expected values are from Redis's documentation.
    #[test]
    fn scores_and_geohashes_match_redis() {
        let score = score_of(PALERMO);
        assert_eq!(score, 3479099956230698.0);
        assert_eq!(&geohash(score), b"sqc8b49rny0");
        let point = point_of(score);
        assert_eq!((point.longitude, point.latitude), (13.361389338970184, 38.1155563954963));
    }

    #[test]
    fn a_point_is_within_its_cells_and_their_score_ranges() {
        let score = score_of(PALERMO);
        for steps in 1..=STEPS_MAX {
            let cell = Cell::of(PALERMO, steps);
            let (edges, (min, max)) = (cell.edges(), cell.scores());
            assert!(edges.west <= PALERMO.longitude && PALERMO.longitude < edges.east);
            assert!(edges.south <= PALERMO.latitude && PALERMO.latitude < edges.north);
            assert!(min <= score && score < max);
        }
    }

    #[test]
    fn neighbours_share_edges_and_wrap_around() {
        let cell = Cell::of(PALERMO, 10);
        let north_east = cell.neighbour(Move::Up, Move::Up);
        assert_eq!((north_east.edges().west, north_east.edges().south), (cell.edges().east, cell.edges().north));
        let south_west = cell.neighbour(Move::Down, Move::Down);
        assert_eq!((south_west.edges().east, south_west.edges().north), (cell.edges().west, cell.edges().south));
        let corner = Cell::of(Point { longitude: -180.0, latitude: -LATITUDE_MAX }, 3);
        let opposite = corner.neighbour(Move::Down, Move::Down);
        assert_eq!((opposite.edges().east, opposite.edges().north), (180.0, LATITUDE_MAX));
        assert_eq!(opposite.neighbour(Move::Up, Move::Up), corner);
    }

    #[test]
    fn any_score_stands_for_a_point() {
        for score in [-1.0, -1e300, 1e300, f64::INFINITY, f64::NEG_INFINITY, 0.5, 9e15, 1.8e19] {
            let point = point_of(score);
            assert!(point.longitude.abs() <= LONGITUDE_MAX && point.latitude.abs() <= LATITUDE_MAX, "{score}");
        }
        assert_eq!(bits_of_score(-1.0), u64::MAX);
        assert_eq!(bits_of_score(f64::INFINITY), 0);
    }
}
