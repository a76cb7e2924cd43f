//! The `#[kernel]` attribute: turns an `async fn` over `Core` into something that can be submitted; and
//! `#[orchestration]`, the same for a function that submits to the cores of a chip.
//!
//! The function itself stays as it is, so kernels can call each other. Beside it comes a module of the same
//! name with a `task` function, which takes what the function takes (less the core) and returns a `Task`;
//! and an entry in the program's kernel registry.
#![forbid(unsafe_code)]

mod orchestration;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::{Error, FnArg, GenericParam, ItemFn, Pat, Result, ReturnType, Type, parse2};

/// Registers an `async fn` as a kernel. See the crate `ringwork` for an example.
#[proc_macro_attribute]
pub fn kernel(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(attribute.into(), item.into())
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

/// Registers a function over a chip's orchestrator as a task. See the crate `ringwork` for an example.
#[proc_macro_attribute]
pub fn orchestration(
    attribute: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    orchestration::expand(attribute.into(), item.into())
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

/// A parameter after the core.
struct Parameter {
    name: Ident,
    ty: Type,
}

fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !attribute.is_empty() {
        return Err(Error::new_spanned(attribute, "#[kernel] takes no arguments"));
    }
    let function: ItemFn = parse2(item)?;
    check_shape(&function)?;
    let element = element_generic(&function)?;
    let parameters = parameters(&function)?;
    let module = module(&function, element.as_ref(), &parameters)?;
    Ok(quote! {
        #[allow(clippy::too_many_arguments, reason = "a kernel takes what it needs")]
        #function
        #module
    })
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

fn parameters(function: &ItemFn) -> Result<Vec<Parameter>> {
    let typed = |arg: &FnArg| match arg {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(name) => Ok(Parameter {
                name: name.ident.clone(),
                ty: (*typed.ty).clone(),
            }),
            other => Err(Error::new_spanned(other, "a kernel's parameters are plain names")),
        },
        FnArg::Receiver(receiver) => Err(Error::new_spanned(receiver, "a kernel is not a method")),
    };
    function.sig.inputs.iter().skip(1).map(typed).collect()
}

fn mentions(ty: &Type, name: &Ident) -> bool {
    fn search(stream: TokenStream, name: &Ident) -> bool {
        stream.into_iter().any(|token| match token {
            proc_macro2::TokenTree::Ident(ident) => ident == *name,
            proc_macro2::TokenTree::Group(group) => search(group.stream(), name),
            _ => false,
        })
    }
    search(quote! { #ty }, name)
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
    let doc = format!("The kernel [`{name}`](fn@{name}) as a task.");
    let task_doc = format!("[`{name}`](fn@super::{name}) with its arguments, to be submitted.");

    let decoded = quote! {
        #(let #names: #types = rt::decode(NAME, &args, #indices, #texts)?;)*
        super::#name(core, #(#names),*)
    };
    // A kernel that is generic over its element is instantiated for every dtype; the first argument that
    // has elements says which.
    let for_dtype = |body: TokenStream| -> Result<TokenStream> {
        let Some(element) = element else { return Ok(body) };
        let found = parameters.iter().position(|p| mentions(&p.ty, element));
        let index = found.ok_or_else(|| {
            Error::new_spanned(
                element,
                "no parameter mentions this type, so a task could not tell which it is",
            )
        })?;
        let text = &texts[index];
        Ok(quote! {
            let dtype = rt::dtype_of(NAME, &args, #index, #text)?;
            rt::with_dtype!(dtype, #element => { #body })
        })
    };
    let run = for_dtype(quote! { core.run(async { #decoded.await }) })?;
    let step = for_dtype(quote! { #decoded.await })?;
    let generics = element.map(|element| quote! { <#element: rt::Element> });
    let example = element.map(|element| quote! { type #element = f32; });
    let arguments: Vec<_> = names.iter().map(|name| format_ident!("{name}")).collect();

    Ok(quote! {
        #[doc = #doc]
        #visibility mod #name {
            #[allow(unused_imports, reason = "a kernel's parameter types are whatever its file has in scope")]
            use super::*;
            use ::ringwork::__kernel as rt;

            const NAME: &str = ::core::module_path!();
            const SIGNATURE: u64 = rt::signature_hash(#signature);
            const PARAMS: &[rt::Param] = {
                #example
                &[#(rt::Param { name: #texts, tag: <#types as rt::Parameter>::TAG }),*]
            };

            #[doc = #task_doc]
            #[allow(clippy::too_many_arguments, reason = "as many as the kernel has")]
            pub fn task #generics(#(#arguments: impl rt::Argument<#types>),*) -> rt::Task {
                rt::Task {
                    kernel: rt::KernelId { name: NAME.into(), signature: SIGNATURE },
                    params: PARAMS,
                    args: ::std::vec![#(rt::Argument::<#types>::to_arg(&#arguments)),*],
                }
            }

            fn run(core: &rt::NativeCore, args: &[rt::Arg]) -> rt::Result<()> {
                #run
            }

            fn step(core: rt::SteppedCore, args: ::std::vec::Vec<rt::Arg>) -> rt::SteppedKernel {
                ::std::boxed::Box::pin(async move {
                    let core = &core;
                    #step
                })
            }

            #[rt::linkme::distributed_slice(rt::KERNELS)]
            #[linkme(crate = rt::linkme)]
            static ENTRY: rt::KernelEntry =
                rt::KernelEntry { name: NAME, signature: SIGNATURE, params: PARAMS, run, step };
        }
    })
}
