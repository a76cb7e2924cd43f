//! The `#[kernel]` attribute: an `async fn` over a core as a task.

use super::task::{Kind, kernel_entry, read};
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Error, FnArg, GenericParam, ItemFn, Result, ReturnType, Type};

pub(super) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let kind = Kind {
        what: "kernel",
        runtime: quote! { ::ringwork::__kernel },
        submitted: "",
    };
    let read = read(&kind, &attribute, item, |function| {
        check_shape(function)?;
        element_generic(function)
    })?;
    let call = read.call(&quote! { core });
    let run = read.for_dtype(quote! { core.run(async { #call.await }) })?;
    let step = read.for_dtype(quote! { #call.await })?;
    let entry = kernel_entry(&quote! { step });
    let entries = quote! {
        fn run(core: &rt::NativeCore, args: &[rt::Arg]) -> rt::Result<()> {
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
            "a kernel returns `ringwork::Result<()>`",
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
    Ok(())
}

/// The generic that stands for the element type, if the kernel has one beside its core.
fn element_generic(function: &ItemFn) -> Result<Option<Ident>> {
    let mut types = function.sig.generics.params.iter().map(|param| match param {
        GenericParam::Type(ty) => Ok(ty.ident.clone()),
        other => Err(Error::new_spanned(
            other,
            "a kernel is generic over its core and at most one element type",
        )),
    });
    let Some(core) = types.next().transpose()? else {
        return Err(Error::new_spanned(
            &function.sig.ident,
            "a kernel is generic over its core: `<C: Core>`",
        ));
    };
    let element = types.next().transpose()?;
    if let Some(third) = types.next() {
        let message = "a kernel is generic over its core and at most one element type";
        return Err(Error::new_spanned(third?, message));
    }
    let _ = core;
    Ok(element)
}
