//! The `#[orchestration]` attribute: a function over a chip's orchestrator as a task.

use super::{Parameter, mentions, parameters};
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Error, FnArg, GenericParam, ItemFn, Result, ReturnType, Type, parse2};

pub(super) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !attribute.is_empty() {
        return Err(Error::new_spanned(
            attribute,
            "#[orchestration] takes no arguments",
        ));
    }
    let function: ItemFn = parse2(item)?;
    check_shape(&function)?;
    let element = element_generic(&function)?;
    let module = module(&function, element.as_ref(), &parameters(&function)?)?;
    Ok(quote! {
        #[allow(clippy::too_many_arguments, reason = "an orchestration takes what it needs")]
        #function
        #module
    })
}

fn check_shape(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if let Some(asyncness) = signature.asyncness {
        let message = "an orchestration submits and does not wait: a plain `fn`";
        return Err(Error::new_spanned(asyncness, message));
    }
    if matches!(signature.output, ReturnType::Default) {
        let message = "an orchestration returns the kernels' `Result<()>`";
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

/// The generic that stands for the element type, if there is one.
fn element_generic(function: &ItemFn) -> Result<Option<Ident>> {
    let mut types = function.sig.generics.params.iter();
    let element = match types.next() {
        None => return Ok(None),
        Some(GenericParam::Type(ty)) => ty.ident.clone(),
        Some(other) => {
            let message = "an orchestration is generic over at most one element type";
            return Err(Error::new_spanned(other, message));
        }
    };
    match types.next() {
        None => Ok(Some(element)),
        Some(second) => Err(Error::new_spanned(
            second,
            "an orchestration is generic over at most one element type",
        )),
    }
}

fn module(function: &ItemFn, element: Option<&Ident>, parameters: &[Parameter]) -> Result<TokenStream> {
    let (name, visibility) = (&function.sig.ident, &function.vis);
    let names: Vec<_> = parameters.iter().map(|p| &p.name).collect();
    let types: Vec<_> = parameters.iter().map(|p| &p.ty).collect();
    let texts: Vec<_> = names.iter().map(ToString::to_string).collect();
    let indices = 0..parameters.len();
    let signature = parameters
        .iter()
        .map(|Parameter { name, ty }| format!("{name}: {}", quote! { #ty }));
    let signature = signature.collect::<Vec<_>>().join(", ");
    let doc = format!("The orchestration [`{name}`](fn@{name}) as a task.");
    let task_doc = format!("[`{name}`](fn@super::{name}) with its arguments, to be submitted to a chip.");
    let mut build = quote! {
        #(let #names: #types = rt::decode(NAME, args, #indices, #texts)?;)*
        super::#name(orch, #(#names),*)
    };
    if let Some(element) = element {
        let found = parameters.iter().position(|p| mentions(&p.ty, element));
        let index = found.ok_or_else(|| {
            let message = "no parameter mentions this type, so a task could not tell which it is";
            Error::new_spanned(element, message)
        })?;
        let text = &texts[index];
        build = quote! {
            let dtype = rt::dtype_of(NAME, args, #index, #text)?;
            rt::with_dtype!(dtype, #element => { #build })
        };
    }
    let generics = element.map(|element| quote! { <#element: rt::Element> });
    let example = element.map(|element| quote! { type #element = f32; });
    Ok(quote! {
        #[doc = #doc]
        #visibility mod #name {
            #[allow(unused_imports, reason = "an orchestration's parameter types are whatever its file has in scope")]
            use super::*;
            use ::ringwork::__orchestration as rt;

            const NAME: &str = ::core::module_path!();
            const SIGNATURE: u64 = rt::signature_hash(#signature);
            const PARAMS: &[rt::Param] = {
                #example
                &[#(rt::Param { name: #texts, tag: <#types as rt::Parameter>::TAG }),*]
            };

            #[doc = #task_doc]
            #[allow(clippy::too_many_arguments, reason = "as many as the orchestration has")]
            pub fn task #generics(#(#names: impl rt::Argument<#types>),*) -> rt::Task {
                rt::Task {
                    kernel: rt::KernelId { name: NAME.into(), signature: SIGNATURE },
                    params: PARAMS,
                    args: ::std::vec![#(rt::Argument::<#types>::to_arg(&#names)),*],
                }
            }

            fn build(orch: &mut rt::ChipOrchestrator<'_>, args: &[rt::Arg]) -> rt::Result<()> {
                #build
            }

            fn run(core: &rt::NativeCore, args: &[rt::Arg]) -> rt::Result<()> {
                rt::run(core, args, PARAMS.len(), build)
            }

            #[rt::linkme::distributed_slice(rt::KERNELS)]
            #[linkme(crate = rt::linkme)]
            static ENTRY: rt::KernelEntry =
                rt::KernelEntry { name: NAME, signature: SIGNATURE, params: PARAMS, run, step: rt::step };

            #[rt::linkme::distributed_slice(rt::ORCHESTRATIONS)]
            #[linkme(crate = rt::linkme)]
            static ORCHESTRATION: rt::OrchestrationEntry =
                rt::OrchestrationEntry { name: NAME, signature: SIGNATURE, build };
        }
    })
}
