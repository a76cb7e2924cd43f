//! Suggestions for mistyped names.

/// The known name nearest to `typed`, if any is near enough to have been meant.
///
/// ```
/// use ringwork_isa::nearest;
/// assert_eq!(nearest("all_reduce", ["allreduce", "vector_add"]), Some("allreduce"));
/// assert_eq!(nearest("zzz", ["allreduce", "vector_add"]), None);
/// ```
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Of a long input only the beginning counts, so that the work is bounded.
    let typed: String = typed.chars().take(64).collect();
    let scored = known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&typed, name), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.75).then_some(best.1)
}
