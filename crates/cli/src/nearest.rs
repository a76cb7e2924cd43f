//! Suggestions for mistyped names.

/// The known name nearest to `typed`, if any is near enough to have been meant.
pub(crate) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(typed, name), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.75).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let known = ["allreduce", "allgather", "vector_add"];
        assert_eq!(nearest("all_reduce", known), Some("allreduce"));
        assert_eq!(nearest("alreduce", known), Some("allreduce"));
        assert_eq!(nearest("zzz", known), None);
    }
}
