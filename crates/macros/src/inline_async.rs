//! The `#[flat]` attribute: an `async fn` that is inlined into its callers.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemFn, Result, ReturnType};

pub(super) fn expand(item: TokenStream) -> Result<TokenStream> {
    let mut function: ItemFn = syn::parse2(item)?;
    if function.sig.asyncness.take().is_none() {
        let message = "`#[flat]` is for an `async fn`";
        return Err(Error::new_spanned(function.sig.fn_token, message));
    }
    let output = match &function.sig.output {
        ReturnType::Default => quote! { () },
        ReturnType::Type(_, ty) => quote! { #ty },
    };
    function.sig.output = syn::parse2(quote! { -> impl ::core::future::Future<Output = #output> })?;
    let block = &function.block;
    // The attribute on the block inlines the polling; the one on the function only inlines making the future.
    function.block = syn::parse2(quote! {{
        #[inline(always)]
        async move #block
    }})?;
    Ok(quote! {
        #[inline(always)]
        #function
    })
}
