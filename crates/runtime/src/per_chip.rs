//! One value for each of some chips: tensors, tasks, results.

use ringwork_isa::Device;
use std::ops::{Index, IndexMut};

/// One value for each of some chips, indexed by chip. Made by [`Node::each`](crate::Node::each) and
/// [`Domain::each`](crate::Domain::each), or collected from pairs.
///
/// A chip's number is not its place in a list: a node of devices 4 to 7 has no `x[0]`.
///
/// ```
/// use ringwork_runtime::{Device, Node};
/// # fn main() -> ringwork_runtime::Result<()> {
/// let node = Node::builder().devices(4..6).launch()?;
/// let x = node.each(|chip| node.tensor(chip, &[chip.0 as f32; 3]))?;
/// assert_eq!(x[Device(5)].read()?, [5.0; 3]);
/// assert_eq!(x.iter().count(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerChip<T> {
    values: Vec<(Device, T)>,
}

impl<T> PerChip<T> {
    pub(crate) fn try_of<E>(
        chips: impl IntoIterator<Item = Device>,
        mut value: impl FnMut(Device) -> Result<T, E>,
    ) -> Result<PerChip<T>, E> {
        let pairs = chips.into_iter().map(|chip| Ok((chip, value(chip)?)));
        Ok(PerChip {
            values: pairs.collect::<Result<_, E>>()?,
        })
    }

    /// A chip's value, if it has one.
    #[must_use]
    pub fn get(&self, chip: Device) -> Option<&T> {
        let found = self.values.iter().find(|(known, _)| *known == chip);
        found.map(|(_, value)| value)
    }

    /// A chip's value, to be changed, if it has one.
    #[must_use]
    pub fn get_mut(&mut self, chip: Device) -> Option<&mut T> {
        let found = self.values.iter_mut().find(|(known, _)| *known == chip);
        found.map(|(_, value)| value)
    }

    /// The chips, in the order in which they were given.
    pub fn chips(&self) -> impl ExactSizeIterator<Item = Device> + '_ {
        self.values.iter().map(|(chip, _)| *chip)
    }

    /// Each chip and its value.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Device, &T)> {
        self.values.iter().map(|(chip, value)| (*chip, value))
    }

    /// The values in the order of their chips: in a domain, of their ranks.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &T> {
        self.values.iter().map(|(_, value)| value)
    }
}

/// # Panics
/// If the chip has no value, as a slice does; [`get`](PerChip::get) does not.
impl<T> Index<Device> for PerChip<T> {
    type Output = T;

    #[track_caller]
    fn index(&self, chip: Device) -> &T {
        match self.get(chip) {
            Some(value) => value,
            None => no_value(chip, self.chips()),
        }
    }
}

/// # Panics
/// As [`Index`].
impl<T> IndexMut<Device> for PerChip<T> {
    #[track_caller]
    fn index_mut(&mut self, chip: Device) -> &mut T {
        let Some(place) = self.chips().position(|known| known == chip) else {
            no_value(chip, self.chips())
        };
        &mut self.values[place].1
    }
}

#[cold]
#[track_caller]
#[allow(clippy::panic, reason = "an index out of bounds panics, here as in a slice")]
fn no_value(chip: Device, have: impl Iterator<Item = Device>) -> ! {
    let have: Vec<_> = have.collect();
    panic!(
        "no value for chip {chip}; there is one for {}",
        crate::domain::list(&have)
    )
}

impl<T> FromIterator<(Device, T)> for PerChip<T> {
    fn from_iter<I: IntoIterator<Item = (Device, T)>>(pairs: I) -> PerChip<T> {
        PerChip {
            values: pairs.into_iter().collect(),
        }
    }
}

impl<T> IntoIterator for PerChip<T> {
    type Item = (Device, T);
    type IntoIter = std::vec::IntoIter<(Device, T)>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_chip_and_not_by_its_place() {
        let mut names: PerChip<&str> = [(Device(7), "left"), (Device(3), "right")].into_iter().collect();
        assert_eq!((names[Device(3)], names.get(Device(0))), ("right", None));
        names[Device(7)] = "first";
        assert_eq!(names.values().copied().collect::<Vec<_>>(), ["first", "right"]);
    }

    #[test]
    #[should_panic = "no value for chip 0; there is one for 7, 3"]
    fn a_chip_without_a_value_is_named() {
        let names: PerChip<u8> = [(Device(7), 1), (Device(3), 2)].into_iter().collect();
        let _ = names[Device(0)];
    }
}
