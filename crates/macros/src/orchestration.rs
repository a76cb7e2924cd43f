//! The `#[orchestration]` attribute: a function over a chip's orchestrator as a task.

use super::task_module::{Kind, kernel_entry, read};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, FnArg, ItemFn, Result, ReturnType, Type};

pub(super) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let kind = Kind {
        what: "orchestration",
        runtime: quote! { ::ringwork::__orchestration },
        submitted: " to a chip",
    };
    let read = read(&kind, &attribute, item, check_shape, 0)?;
    let build = read.for_dtypes(read.call(&quote! { orch }))?;
    let entry = kernel_entry(&quote! { rt::step });
    let entries = quote! {
        fn build(orch: &mut rt::ChipOrchestrator<'_>, args: &[rt::Arg]) -> rt::Result<()> {
            #build
        }

        fn run(core: &dyn ::core::any::Any, args: &[rt::Arg]) -> rt::Result<()> {
            rt::run(rt::core_as(NAME, core)?, args, PARAMS.len(), build)
        }

        #entry

        #[rt::linkme::distributed_slice(rt::ORCHESTRATIONS)]
        #[linkme(crate = rt::linkme)]
        static ORCHESTRATION: rt::OrchestrationEntry =
            rt::OrchestrationEntry { name: NAME, signature: SIGNATURE, build };
    };
    Ok(read.written(&kind, &entries))
}

fn check_shape(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if let Some(asyncness) = signature.asyncness {
        let message = "an orchestration submits and does not wait: a plain `fn`";
        return Err(Error::new_spanned(asyncness, message));
    }
    if matches!(signature.output, ReturnType::Default) {
        let message = "an orchestration returns `Result<()>`";
        return Err(Error::new_spanned(&signature.ident, message));
    }
    let first = "an orchestration's first parameter is `orch: &mut ChipOrchestrator<'_>`";
    match signature.inputs.first() {
        Some(FnArg::Typed(orch)) if matches!(&*orch.ty, Type::Reference(to) if to.mutability.is_some()) => {
            Ok(())
        }
        _ => Err(Error::new_spanned(&signature.ident, first)),
    }
}
