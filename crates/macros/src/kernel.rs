//! The `#[kernel]` attribute: an `async fn` over a core as a task.

use super::task_module::{Kind, kernel_entry, read};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, FnArg, GenericParam, ItemFn, Result, ReturnType, Type};

pub(super) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let kind = Kind {
        what: "kernel",
        runtime: quote! { ::ringwork::__kernel },
        submitted: "",
    };
    let read = read(&kind, &attribute, item, check_shape, 1)?;
    let call = read.call(&quote! { core });
    let run = read.for_dtypes(quote! { core.run(async { #call.await }) })?;
    let step = read.for_dtypes(quote! { #call.await })?;
    let entry = kernel_entry(&quote! { step });
    let entries = quote! {
        fn run(core: &dyn ::core::any::Any, args: &[rt::Arg]) -> rt::Result<()> {
            let core: &rt::NativeCore = rt::core_as(NAME, core)?;
            #run
        }

        fn step(core: rt::SteppedCore, args: ::std::vec::Vec<rt::Arg>) -> rt::SteppedKernel {
            ::std::boxed::Box::pin(async move {
                let core = &core;
                #step
            })
        }

        #entry
    };
    Ok(read.written(&kind, &entries))
}

fn check_shape(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new_spanned(
            signature.fn_token,
            "a kernel is an `async fn`",
        ));
    }
    if matches!(signature.output, ReturnType::Default) {
        return Err(Error::new_spanned(
            &signature.ident,
            "a kernel returns `Result<()>`",
        ));
    }
    let Some(FnArg::Typed(core)) = signature.inputs.first() else {
        return Err(Error::new_spanned(
            &signature.ident,
            "a kernel's first parameter is its core: `core: &C`",
        ));
    };
    if !matches!(*core.ty, Type::Reference(_)) {
        return Err(Error::new_spanned(
            &core.ty,
            "a kernel takes its core by reference: `core: &C`",
        ));
    }
    match signature.generics.params.first() {
        Some(GenericParam::Type(_)) => Ok(()),
        _ => Err(Error::new_spanned(
            &signature.ident,
            "a kernel is generic over its core: `<C: Core>`",
        )),
    }
}
