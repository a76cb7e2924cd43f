//! Functions that the attributes refuse, and the message for each.

use proc_macro2::TokenStream;
use quote::quote;

fn refused(item: TokenStream) -> String {
    super::kernel::expand(TokenStream::new(), item)
        .unwrap_err()
        .to_string()
}

fn accepted(item: TokenStream) -> String {
    super::kernel::expand(TokenStream::new(), item)
        .unwrap()
        .to_string()
}

#[test]
fn an_element_type_without_a_bound_is_refused_with_the_cure() {
    let message = "say which element types: `T: Element` or `T: Float`";
    assert_eq!(
        refused(quote! { async fn k<C: Core, T>(core: &C, x: In<T>) -> Result<()> {} }),
        message
    );
    assert_eq!(
        refused(quote! { async fn k<C: Core, T: Ord>(core: &C, x: In<T>) -> Result<()> where C: Float {} }),
        message
    );
}

#[test]
fn what_is_not_a_type_or_is_in_no_parameter_is_refused() {
    assert_eq!(
        refused(quote! { async fn k<C: Core, const N: usize>(core: &C) -> Result<()> {} }),
        "a parameter of #[kernel] is an element type: `T: Element`"
    );
    assert_eq!(
        refused(quote! { async fn k<C: Core, T: Element, U: Float>(core: &C, x: In<T>) -> Result<()> {} }),
        "no parameter mentions this type, so a task could not tell which it is"
    );
    assert_eq!(
        refused(quote! { async fn k(core: &NativeCore) -> Result<()> {} }),
        "a kernel is generic over its core: `<C: Core>`"
    );
}

#[test]
fn more_than_two_element_types_are_refused() {
    let message = refused(quote! {
        async fn k<C: Core, T: Element, U: Element, V: Float>(core: &C, x: In<T>, y: In<U>, z: In<V>) -> Result<()> {}
    });
    assert!(
        message.starts_with("compiled for every combination of its element types, of which 2 are allowed")
    );
}

#[test]
fn floats_are_found_in_bounds_and_in_where_clauses() {
    let of_bound =
        accepted(quote! { async fn k<C: Core, T: isa::Float>(core: &C, x: In<T>) -> Result<()> {} });
    let of_clause =
        accepted(quote! { async fn k<C: Core, T>(core: &C, x: In<T>) -> Result<()> where T: Float {} });
    let of_element =
        accepted(quote! { async fn k<C: Core, T: Element>(core: &C, x: In<T>) -> Result<()> {} });
    assert!(of_bound.contains("with_float") && !of_bound.contains("with_dtype"));
    assert!(of_clause.contains("with_float") && !of_clause.contains("with_dtype"));
    assert!(of_element.contains("with_dtype") && !of_element.contains("with_float"));
}

#[test]
fn result_means_the_kernels_result_whichever_is_in_scope() {
    let written = accepted(quote! { async fn k<C: Core>(core: &C) -> Result<()> { Ok(()) } });
    assert!(
        written.contains("-> :: ringwork :: __kernel :: Result < () >"),
        "{written}"
    );
    assert!(written.contains("type Result < T , E ="), "{written}");
    let named = accepted(quote! { async fn k<C: Core>(core: &C) -> KernelResult<()> { Ok(()) } });
    assert!(named.contains("-> KernelResult < () >"), "{named}");
}
