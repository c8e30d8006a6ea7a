//! Distances on the earth, modelled as a sphere, and their units.
//!
//! The formulas follow Redis's order of operations, so that every bit of the results is the same. Source: the haversine
//! formula, and Redis's value of the earth's radius.

use super::cell::Point;
use crate::error::Error;

/// The earth's radius in metres.
pub const RADIUS_M: f64 = 6372797.560856;
/// Radians per degree.
const RADIANS: f64 = std::f64::consts::PI / 180.0;

const NO_UNIT: Error = Error::fixed("ERR unsupported unit provided. please use M, KM, FT, MI");

/// Degrees to radians.
#[inline]
pub fn radians(degrees: f64) -> f64 {
    degrees * RADIANS
}

/// Radians to degrees.
#[inline]
pub fn degrees(radians: f64) -> f64 {
    radians / RADIANS
}

/// Returns the number of metres of a unit.
pub fn metres_of_unit(word: &[u8]) -> Result<f64, Error> {
    match word {
        word if word.eq_ignore_ascii_case(b"m") => Ok(1.0),
        word if word.eq_ignore_ascii_case(b"km") => Ok(1000.0),
        word if word.eq_ignore_ascii_case(b"ft") => Ok(0.3048),
        word if word.eq_ignore_ascii_case(b"mi") => Ok(1609.34),
        _ => Err(NO_UNIT),
    }
}

/// The distance between two latitudes along a meridian, in metres.
#[inline]
pub fn along_meridian(a: f64, b: f64) -> f64 {
    RADIUS_M * (radians(b) - radians(a)).abs()
}

/// A point with precomputed terms for many distances.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    pub point: Point,
    longitude: f64,
    latitude: f64,
    cos_latitude: f64,
}

impl Origin {
    pub fn new(point: Point) -> Origin {
        let (longitude, latitude) = (radians(point.longitude), radians(point.latitude));
        Origin { point, longitude, latitude, cos_latitude: latitude.cos() }
    }

    /// The distance to a point, in metres.
    #[inline]
    pub fn distance_m(&self, to: Point) -> f64 {
        let v = ((radians(to.longitude) - self.longitude) / 2.0).sin();
        if v == 0.0 {
            return along_meridian(self.point.latitude, to.latitude);
        }
        let latitude = radians(to.latitude);
        let u = ((latitude - self.latitude) / 2.0).sin();
        let a = u * u + self.cos_latitude * latitude.cos() * v * v;
        // Rounding may yield a value above 1 for opposite points; such a value has no arcsine.
        2.0 * RADIUS_M * a.min(1.0).sqrt().asin()
    }
}

/// The distance between two points, in metres.
pub fn distance_m(a: Point, b: Point) -> f64 {
    Origin::new(a).distance_m(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(longitude: f64, latitude: f64) -> Point {
        Point { longitude, latitude }
    }

    #[test]
    fn distances_match_known_values() {
        let quarter = RADIUS_M * std::f64::consts::FRAC_PI_2;
        for (a, b, expected) in [
            (point(0.0, 0.0), point(90.0, 0.0), quarter),
            (point(0.0, 0.0), point(180.0, 0.0), 2.0 * quarter),
            (point(179.5, 0.0), point(-179.5, 0.0), quarter / 90.0),
            (point(0.0, 80.0), point(180.0, 80.0), quarter / 4.5),
            (point(7.0, -40.0), point(7.0, 50.0), quarter),
            (point(7.0, 50.0), point(7.0, 50.0), 0.0),
        ] {
            for (from, to) in [(a, b), (b, a)] {
                assert!((distance_m(from, to) - expected).abs() < 1e-6, "{from:?} {to:?}");
            }
        }
    }

    #[test]
    fn opposite_points_have_a_distance() {
        for n in 0..1000 {
            let (longitude, latitude) = (f64::from(n) * 0.18 - 180.0, f64::from(n) * 0.17 - 85.0);
            assert!(distance_m(point(longitude, latitude), point(longitude + 180.0, -latitude)).is_finite());
        }
    }
}
