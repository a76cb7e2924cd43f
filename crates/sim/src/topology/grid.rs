//! Ranks as a grid: which members of which levels they are, and the sides of the grid that the levels make.

use super::units::shorten;
use super::{Topology, Unit};
use crate::net::{Level, Shape};
use ringwork_yaml::{ConfigError, Problem, Reader};

/// Reads what a rank is: `chips`, `cores`, or the name of a level.
pub(super) fn read_unit(reader: &Reader<'_>, levels: &[Level]) -> Result<Unit, ConfigError> {
    let word = reader.text()?;
    match word {
        "chips" => return Ok(Unit::Chip),
        "cores" => return Ok(Unit::Core),
        _ => {}
    }
    let found = levels.iter().position(|level| level.name == word);
    let Some(found) = found else {
        let names = levels.iter().map(|level| format!("`{}`", level.name));
        let names: Vec<_> = ["`chips`".to_owned(), "`cores`".to_owned()]
            .into_iter()
            .chain(names)
            .collect();
        return Err(reader.error(Problem::OutOfRange {
            got: format!("`{}`", shorten(word)),
            wanted: format!("one of {}", names.join(", ")),
        }));
    };
    let inside = levels[found + 1..].iter();
    let cores = inside.fold(1u64, |all, level| all.saturating_mul(level.shape.size()));
    Ok(Unit::Member(u32::try_from(cores).unwrap_or(u32::MAX)))
}

impl Topology {
    /// The sides of the grid that the first `ranks` ranks make, innermost first: the place of a rank in the first
    /// dimension varies fastest. `None` if they make none: links that were written down one by one, or a number that
    /// ends in the middle of a row.
    ///
    /// ```
    /// use ringwork_sim::Topology;
    /// let torus = Topology::preset("torus-2x3x4").unwrap();
    /// assert_eq!(torus.grid(24), Some(vec![4, 3, 2]));
    /// assert_eq!(torus.grid(8), Some(vec![4, 2]));
    /// assert_eq!(torus.grid(9), None);
    /// ```
    #[must_use]
    pub fn grid(&self, ranks: u32) -> Option<Vec<u32>> {
        if self.levels.is_empty() || ranks == 0 {
            return None;
        }
        let unit = match self.unit {
            Unit::Core => 1,
            Unit::Member(cores) => u64::from(cores),
            Unit::Chip => u64::from(self.cores_per_chip),
        };
        let (mut inside, mut left, mut sizes) = (1u64, ranks, Vec::new());
        for level in self.levels.iter().rev() {
            if inside >= unit {
                for side in sides(&level.shape) {
                    let here = side.min(left);
                    if here == 0 || left % here != 0 {
                        return None;
                    }
                    left /= here;
                    sizes.push(here);
                }
            }
            inside = inside.saturating_mul(level.shape.size());
        }
        while sizes.len() > 1 && sizes.last() == Some(&1) {
            sizes.pop();
        }
        (left == 1).then_some(sizes)
    }
}

/// The sides of one level, innermost first.
fn sides(shape: &Shape) -> Vec<u32> {
    match shape {
        Shape::Ring(n) | Shape::Line(n) | Shape::Full(n) | Shape::Switch { size: n, .. } => vec![*n],
        Shape::Mesh(dims) | Shape::Torus(dims) => dims.iter().rev().copied().collect(),
        Shape::FatTree { down, .. } => down.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::preset_yaml;

    fn sip(ranks: &str) -> Topology {
        let yaml = preset_yaml("sip6-torus").unwrap();
        let yaml = yaml.replace("ranks: cores", &format!("ranks: {ranks}"));
        Topology::from_yaml("sip.yaml", &yaml).unwrap()
    }

    #[test]
    fn ranks_are_chips_cores_or_the_members_of_a_level() {
        for (unit, ranks, grid) in [
            ("chips", 6, vec![3, 2]),
            ("sip", 6, vec![3, 2]),
            ("cube", 96, vec![4, 4, 3, 2]),
            ("pe", 768, vec![8, 4, 4, 3, 2]),
            ("cores", 768, vec![8, 4, 4, 3, 2]),
        ] {
            let machine = sip(unit);
            assert_eq!(machine.ranks(), ranks, "{unit}");
            assert_eq!(machine.grid(ranks), Some(grid), "{unit}");
        }
        assert_eq!(sip("cube").place(17), 17 * 8);
        assert_eq!(sip("cube").grid(32), Some(vec![4, 4, 2]));
    }

    #[test]
    fn what_is_no_grid_is_none() {
        let grid = |name: &str, ranks| Topology::preset(name).unwrap().grid(ranks);
        assert_eq!(grid("v100x8", 8), None);
        assert_eq!(grid("torus-4x4", 6), None);
        assert_eq!(grid("torus-4x4", 32), None);
        assert_eq!(grid("torus-4x4", 1), Some(vec![1]));
        assert_eq!(grid("ring-8", 3), Some(vec![3]));
        assert_eq!(grid("nodes-2x4", 8), Some(vec![4, 2]));
        assert_eq!(grid("fat-tree", 64), Some(vec![8, 8]));
    }

    #[test]
    fn a_level_that_is_not_there_is_refused_with_those_that_are() {
        let yaml = preset_yaml("sip6-torus")
            .unwrap()
            .replace("ranks: cores", "ranks: cubes");
        let error = Topology::from_yaml("sip.yaml", &yaml).unwrap_err().to_string();
        assert!(error.contains("ranks: `cubes` is out of range"), "{error}");
        assert!(
            error.contains("one of `chips`, `cores`, `sip`, `cube`, `pe`"),
            "{error}"
        );
    }
}
