//! Search areas: circles, boxes and polygons, the cells that cover them, and tests of points against them.
//!
//! The choice and order of cells is Redis's, because the order of unsorted results follows from it. As in Redis, an
//! area across a pole is not always covered. Points of these cells are tested as in Redis, too; a [`Window`] excludes
//! most of the others cheaply.

use super::cell::{Cell, Edges, LATITUDE_MAX, LONGITUDE_MAX, Move, Point, STEPS_MAX, bits_of_score, column_and_row};
use super::earth::{Origin, RADIUS_M, along_meridian, degrees, radians};

/// Half the length of the equator in metres, on the map that is used to estimate the steps.
const MAP_METRES_MAX: f64 = 20037726.37;
/// Number of searched cells: the centre cell and its neighbours.
pub const CELLS: usize = 9;

/// Shape of an area; lengths are in its unit.
#[derive(Clone, Debug)]
pub enum Outline {
    /// A circle around the centre.
    Circle { radius: f64 },
    /// A box around the centre, aligned with the meridians.
    Box { width: f64, height: f64 },
    /// A polygon with these vertices, on the plane of longitudes and latitudes. Its centre is computed from the
    /// vertices.
    Polygon(Vec<Point>),
}

/// A search area.
#[derive(Clone, Debug)]
pub struct Shape {
    origin: Origin,
    outline: Outline,
    /// Number of metres of its unit.
    metres: f64,
}

impl Shape {
    /// Creates a circle or box around a point. `metres` is the size of the unit of its lengths.
    pub fn around(centre: Point, outline: Outline, metres: f64) -> Shape {
        Shape { origin: Origin::new(centre), outline, metres }
    }

    /// Creates a polygon of at least one vertex.
    pub fn polygon(corners: Vec<Point>) -> Shape {
        Shape { origin: Origin::new(middle_of(&corners)), outline: Outline::Polygon(corners), metres: 1.0 }
    }

    /// Number of metres of the unit for distances.
    pub fn metres(&self) -> f64 {
        self.metres
    }

    /// Distance in metres of a point from the centre, if the point is in the area.
    #[inline]
    pub fn distance_m(&self, point: Point) -> Option<f64> {
        let centre = self.origin.point;
        match &self.outline {
            Outline::Circle { radius } => {
                let distance = self.origin.distance_m(point);
                (distance <= radius * self.metres).then_some(distance)
            }
            Outline::Box { width, height } => {
                if along_meridian(point.latitude, centre.latitude) > height * self.metres / 2.0 {
                    return None;
                }
                let beside = Point { latitude: point.latitude, ..centre };
                if Origin::new(point).distance_m(beside) > width * self.metres / 2.0 {
                    return None;
                }
                Some(self.origin.distance_m(point))
            }
            Outline::Polygon(corners) => is_between(corners, point).then(|| self.origin.distance_m(point)),
        }
    }

    /// The edges that determine the searched cells, as Redis estimates them. They don't bound the area near the poles
    /// and the date line.
    fn estimated_edges(&self) -> Edges {
        let (height, width) = match &self.outline {
            Outline::Circle { radius } => (self.metres * radius, self.metres * radius),
            Outline::Box { width, height } => (self.metres * height / 2.0, self.metres * width / 2.0),
            Outline::Polygon(corners) => return edges_of(corners),
        };
        let Point { longitude, latitude } = self.origin.point;
        let up = degrees(height / RADIUS_M);
        let side_at = |latitude: f64| degrees(width / RADIUS_M / radians(latitude).cos());
        let side = side_at(if latitude < 0.0 { latitude - up } else { latitude + up });
        Edges { west: longitude - side, south: latitude - up, east: longitude + side, north: latitude + up }
    }

    /// Greatest distance of the area's points from its centre, in metres.
    fn reach_m(&self, edges: Edges) -> f64 {
        match &self.outline {
            Outline::Circle { radius } => radius * self.metres,
            Outline::Box { width, height } => {
                let (x, y) = (width / 2.0, height / 2.0);
                (x * x + y * y).sqrt() * self.metres
            }
            Outline::Polygon(_) => {
                let corners = [(edges.west, edges.north), (edges.east, edges.north)];
                let corners = corners.into_iter().chain([(edges.west, edges.south), (edges.east, edges.south)]);
                let distance = |(longitude, latitude)| self.origin.distance_m(Point { longitude, latitude });
                corners.map(distance).fold(0.0, f64::max)
            }
        }
    }

    /// The cells to search, in order, without useless ones. Two of them may be the same.
    pub fn cells(&self) -> [Option<Cell>; CELLS] {
        let edges = self.estimated_edges();
        let mut centre = self.origin.point;
        // The centre of vertices around a pole is beyond the grid.
        centre.latitude = centre.latitude.clamp(-LATITUDE_MAX, LATITUDE_MAX);
        let mut steps = estimated_steps(self.reach_m(edges), centre.latitude);
        let mut cell = Cell::of(centre, steps);
        if steps > 1 && !neighbours_reach(cell, edges) {
            steps -= 1;
            cell = Cell::of(centre, steps);
        }
        let used = if steps >= 2 { Used::of(cell.edges(), edges) } else { Used::ALL };
        use Move::{Down, Stay, Up};
        let neighbour = |used: bool, column, row| used.then(|| cell.neighbour(column, row));
        [
            Some(cell),
            neighbour(used.north, Stay, Up),
            neighbour(used.south, Stay, Down),
            neighbour(used.east, Up, Stay),
            neighbour(used.west, Down, Stay),
            neighbour(used.north && used.east, Up, Up),
            neighbour(used.north && used.west, Down, Up),
            neighbour(used.south && used.east, Up, Down),
            neighbour(used.south && used.west, Down, Down),
        ]
    }

    /// Bounds for the scores of points in the area.
    pub fn window(&self) -> Window {
        let Point { longitude, latitude } = self.origin.point;
        let (up, side) = match &self.outline {
            Outline::Circle { radius } => {
                let angle = radius * self.metres / RADIUS_M;
                (degrees(angle), side_of_circle(angle, latitude))
            }
            Outline::Box { width, height } => {
                let up = degrees(height * self.metres / 2.0 / RADIUS_M);
                (up, side_of_box(width * self.metres / 2.0 / RADIUS_M, latitude.abs() + up))
            }
            Outline::Polygon(corners) => return Window::new(edges_of(corners)),
        };
        let side = side.unwrap_or(LONGITUDE_MAX);
        Window::new(Edges {
            west: longitude - side,
            south: latitude - up,
            east: longitude + side,
            north: latitude + up,
        })
    }
}

/// Extent of a circle to the east and west, in degrees. `angle` is the radius in radians. None near a pole.
fn side_of_circle(angle: f64, latitude: f64) -> Option<f64> {
    let latitude = radians(latitude);
    let is_near_pole = latitude.abs() + angle > std::f64::consts::FRAC_PI_2 - NEAR_POLE;
    (!is_near_pole).then(|| degrees((angle.sin() / latitude.cos()).min(1.0).asin()))
}

/// Extent of a box to the east and west, in degrees, at its latitude nearest to a pole. `angle` is half its width in
/// radians. None if the box spans all longitudes.
fn side_of_box(angle: f64, latitude_max: f64) -> Option<f64> {
    let sine = (angle / 2.0).sin() / radians(latitude_max.min(LATITUDE_MAX)).cos();
    (angle < std::f64::consts::PI && sine < 1.0 - NEAR_POLE).then(|| degrees(2.0 * sine.asin()))
}

/// Distance from a pole, in radians, within which the spherical formulas become inexact.
const NEAR_POLE: f64 = 1e-4;

/// Number of steps at which nine cells usually cover a circle.
fn estimated_steps(mut radius_m: f64, latitude: f64) -> u32 {
    if radius_m == 0.0 {
        return STEPS_MAX;
    }
    let mut steps = 1i32;
    while radius_m < MAP_METRES_MAX {
        radius_m *= 2.0;
        steps += 1;
    }
    steps -= 2;
    // Cells are narrower near the poles.
    steps -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    steps.clamp(1, STEPS_MAX as i32) as u32
}

/// True if the neighbours of this cell reach as far as an area does.
fn neighbours_reach(cell: Cell, area: Edges) -> bool {
    use Move::{Down, Stay, Up};
    let edges = |column, row| cell.neighbour(column, row).edges();
    edges(Stay, Up).north >= area.north
        && edges(Stay, Down).south <= area.south
        && edges(Up, Stay).east >= area.east
        && edges(Down, Stay).west <= area.west
}

/// Directions in which an area extends beyond its centre cell.
struct Used {
    north: bool,
    south: bool,
    east: bool,
    west: bool,
}

impl Used {
    const ALL: Used = Used { north: true, south: true, east: true, west: true };

    fn of(cell: Edges, area: Edges) -> Used {
        Used {
            north: cell.north <= area.north,
            south: cell.south >= area.south,
            east: cell.east <= area.east,
            west: cell.west >= area.west,
        }
    }
}

/// The bounding edges of vertices.
fn edges_of(corners: &[Point]) -> Edges {
    let edges = Edges { west: LONGITUDE_MAX, south: LATITUDE_MAX, east: -LONGITUDE_MAX, north: -LATITUDE_MAX };
    corners.iter().fold(edges, |edges, corner| Edges {
        west: edges.west.min(corner.longitude),
        south: edges.south.min(corner.latitude),
        east: edges.east.max(corner.longitude),
        north: edges.north.max(corner.latitude),
    })
}

/// The point on the earth nearest to the mean of some points in space.
fn middle_of(corners: &[Point]) -> Point {
    let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
    for corner in corners {
        let (longitude, latitude) = (radians(corner.longitude), radians(corner.latitude));
        x += RADIUS_M * latitude.cos() * longitude.cos();
        y += RADIUS_M * latitude.cos() * longitude.sin();
        z += RADIUS_M * latitude.sin();
    }
    let count = corners.len() as f64;
    (x, y, z) = (x / count, y / count, z / count);
    Point { longitude: degrees(y.atan2(x)), latitude: degrees(z.atan2((x * x + y * y).sqrt())) }
}

/// True if a line from the point to the east crosses the polygon's sides an odd number of times. See W. Randolph
/// Franklin, "PNPOLY - Point Inclusion in Polygon Test".
fn is_between(corners: &[Point], point: Point) -> bool {
    let crosses = |a: Point, b: Point| {
        (a.latitude > point.latitude) != (b.latitude > point.latitude)
            && point.longitude
                < (b.longitude - a.longitude) * (point.latitude - a.latitude) / (b.latitude - a.latitude) + a.longitude
    };
    let Some(&last) = corners.last() else { return false };
    let before = std::iter::once(&last).chain(corners);
    corners.iter().zip(before).filter(|&(&a, &b)| crosses(a, b)).count() % 2 == 1
}

/// Columns and rows that contain an area. Points outside can't be in the area, and this test is far cheaper than a
/// distance.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    first_column: u32,
    /// Number of columns minus one; columns wrap around.
    columns: u32,
    first_row: u32,
    /// Number of rows minus one.
    rows: u32,
}

/// Number of columns, and of rows, of the grid.
const PARTS: u32 = 1 << STEPS_MAX;
/// Margin around an area for rounding errors, in degrees: about a metre.
const MARGIN: f64 = 1e-5;

impl Window {
    fn new(edges: Edges) -> Window {
        let part = |value: f64, max: f64| ((value + max) / (2.0 * max) * f64::from(PARTS)).floor();
        let west = part(edges.west - MARGIN, LONGITUDE_MAX);
        let columns = part(edges.east + MARGIN, LONGITUDE_MAX) - west;
        let south = part(edges.south - MARGIN, LATITUDE_MAX).max(0.0);
        let rows = part(edges.north + MARGIN, LATITUDE_MAX) - south;
        Window {
            // Columns wrap around the earth.
            first_column: west.rem_euclid(f64::from(PARTS)) as u32,
            columns: if columns < f64::from(PARTS) { columns as u32 } else { PARTS },
            first_row: south as u32,
            rows: rows as u32,
        }
    }

    /// True if the score may belong to a point in the area.
    #[inline]
    pub fn may_hold(&self, score: f64) -> bool {
        let (column, row) = column_and_row(bits_of_score(score));
        // Scores from ZADD, and those at the grid's ends, are outside its columns and rows. The window can't decide
        // about them.
        column >= PARTS
            || row >= PARTS
            || (column.wrapping_sub(self.first_column) % PARTS <= self.columns
                && row.wrapping_sub(self.first_row) <= self.rows)
    }
}

#[cfg(test)]
mod tests {
    use store::random::Random;

    use super::super::cell::{point_of, score_of};
    use super::*;

    /// A random number between two others.
    fn between(random: &mut Random, low: f64, high: f64) -> f64 {
        low + (high - low) * (random.below(1 << 40) as f64 / (1u64 << 40) as f64)
    }

    fn point(random: &mut Random, longitude_max: f64, latitude_max: f64) -> Point {
        Point {
            longitude: between(random, -longitude_max, longitude_max),
            latitude: between(random, -latitude_max, latitude_max),
        }
    }

    /// A random point near another one, sometimes across the date line.
    fn nearby(random: &mut Random, centre: Point, degrees: f64) -> Point {
        let longitude = centre.longitude + between(random, -degrees, degrees) / radians(centre.latitude).cos();
        Point {
            longitude: (longitude + 540.0).rem_euclid(360.0) - 180.0,
            latitude: (centre.latitude + between(random, -degrees, degrees)).clamp(-LATITUDE_MAX, LATITUDE_MAX),
        }
    }

    /// A random area around a centre, of up to `metres`. Turns alternate between the shapes.
    fn shape(random: &mut Random, centre: Point, metres: f64, turn: usize) -> Shape {
        match turn % 3 {
            0 => Shape::around(centre, Outline::Circle { radius: between(random, 0.0, metres) / 1000.0 }, 1000.0),
            1 => {
                let (width, height) = (between(random, 0.0, metres), between(random, 0.0, metres));
                Shape::around(centre, Outline::Box { width, height }, 1.0)
            }
            _ => {
                let reach = degrees(metres / RADIUS_M);
                let count = 3 + random.below(5);
                let corners = (0..count).map(|_| {
                    let away = point(random, reach, reach);
                    Point {
                        longitude: (centre.longitude + away.longitude).clamp(-LONGITUDE_MAX, LONGITUDE_MAX),
                        latitude: (centre.latitude + away.latitude).clamp(-LATITUDE_MAX, LATITUDE_MAX),
                    }
                });
                Shape::polygon(corners.collect())
            }
        }
    }

    /// True if one of the searched cells contains a score.
    fn is_covered(shape: &Shape, score: f64) -> bool {
        shape.cells().into_iter().flatten().any(|cell| {
            let (min, max) = cell.scores();
            min <= score && score < max
        })
    }

    /// Points anywhere on the earth, including the poles and the date line.
    #[test]
    fn a_window_contains_every_point_of_its_area() {
        let mut random = Random::new(7);
        let mut inside = 0;
        for turn in 0..3000 {
            let latitude_max = if turn % 2 == 0 { LATITUDE_MAX } else { 60.0 };
            let mut centre = point(&mut random, LONGITUDE_MAX, latitude_max);
            if turn % 5 == 0 {
                centre.longitude = LONGITUDE_MAX - random.below(2) as f64 * 2.0 * LONGITUDE_MAX;
            }
            let reach = 10f64.powi(1 + random.below(7) as i32);
            let shape = shape(&mut random, centre, reach, turn);
            let window = shape.window();
            for _ in 0..100 {
                let score = score_of(nearby(&mut random, centre, degrees(reach / RADIUS_M).min(90.0)));
                if shape.distance_m(point_of(score)).is_some() {
                    inside += 1;
                    assert!(window.may_hold(score), "{shape:?} {:?}", point_of(score));
                }
            }
        }
        assert!(inside > 30_000, "{inside}");
    }

    /// Redis's cells are right away from the poles and up to a few thousand kilometres.
    #[test]
    fn the_cells_cover_the_area() {
        let mut random = Random::new(8);
        let mut inside = 0;
        for turn in 0..3000 {
            let mut centre = point(&mut random, LONGITUDE_MAX, 55.0);
            if turn % 5 == 0 {
                centre.longitude = LONGITUDE_MAX - between(&mut random, 0.0, 0.01);
            }
            let reach = 10f64.powi(1 + random.below(6) as i32);
            let shape = shape(&mut random, centre, reach, turn);
            for _ in 0..100 {
                let score = score_of(nearby(&mut random, centre, degrees(reach / RADIUS_M)));
                if shape.distance_m(point_of(score)).is_some() {
                    inside += 1;
                    assert!(is_covered(&shape, score), "{shape:?} {:?}", point_of(score));
                }
            }
        }
        assert!(inside > 30_000, "{inside}");
    }

    #[test]
    fn a_window_excludes_most_of_the_cells() {
        let centre = Point { longitude: 13.4, latitude: 52.5 };
        let shape = Shape::around(centre, Outline::Circle { radius: 100.0 }, 1.0);
        let (window, mut random) = (shape.window(), Random::new(9));
        let held = (0..1000).filter(|_| window.may_hold(score_of(nearby(&mut random, centre, 0.01)))).count();
        assert!(held < 50, "{held}");
    }

    #[test]
    fn scores_of_no_point_pass_the_window() {
        let centre = Point { longitude: 0.0, latitude: 0.0 };
        let window = Shape::around(centre, Outline::Circle { radius: 1.0 }, 1.0).window();
        assert!(window.may_hold(-1.0) && window.may_hold((1u64 << 52) as f64) && !window.may_hold(0.0));
    }

    #[test]
    fn windows_of_unbounded_areas_contain_everything() {
        let centre = Point { longitude: 170.0, latitude: -80.0 };
        for outline in [
            Outline::Circle { radius: f64::INFINITY },
            Outline::Circle { radius: 1e300 },
            Outline::Box { width: f64::INFINITY, height: f64::INFINITY },
        ] {
            let shape = Shape::around(centre, outline, 1609.34);
            for longitude in [-180.0, -10.0, 0.0, 179.0] {
                for latitude in [-85.0, 0.0, 85.0] {
                    let score = score_of(Point { longitude, latitude });
                    assert!(shape.window().may_hold(score) && shape.distance_m(point_of(score)).is_some());
                    assert!(is_covered(&shape, score));
                }
            }
        }
    }

    #[test]
    fn a_polygon_contains_only_inner_points() {
        let corner = |longitude, latitude| Point { longitude, latitude };
        // A square with a notch from the north.
        let corners = [(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (2.0, 1.0), (0.0, 4.0)];
        let shape = Shape::polygon(corners.map(|(x, y)| corner(x, y)).to_vec());
        for (x, y, inside) in [
            (0.5, 0.5, true),
            (0.5, 3.0, true),
            (3.5, 3.0, true),
            (2.0, 3.0, false),
            (2.0, 0.5, true),
            (5.0, 1.0, false),
        ] {
            assert_eq!(shape.distance_m(corner(x, y)).is_some(), inside, "{x} {y}");
        }
    }
}
