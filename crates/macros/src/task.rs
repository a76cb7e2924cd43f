//! What both attributes write beside a function: a module of its name, with its identity, its parameters and `task`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Error, FnArg, ItemFn, Pat, Result, Type, parse2};

/// A function with an attribute, read.
pub(crate) struct Read {
    pub(crate) function: ItemFn,
    /// The type parameter that stands for the element type.
    element: Option<Ident>,
    /// The parameters after the first.
    names: Vec<Ident>,
    types: Vec<Type>,
}

/// What is different from one attribute to the other.
pub(crate) struct Kind {
    /// Such as `kernel`.
    pub(crate) what: &'static str,
    /// Where the written code finds what it refers to.
    pub(crate) runtime: TokenStream,
    /// Whom a task is for, at the end of its documentation.
    pub(crate) submitted: &'static str,
}

/// Reads a function. `element_of` checks its shape, and finds its element type.
pub(crate) fn read(
    kind: &Kind,
    attribute: &TokenStream,
    item: TokenStream,
    element_of: impl FnOnce(&ItemFn) -> Result<Option<Ident>>,
) -> Result<Read> {
    if !attribute.is_empty() {
        let message = format!("#[{}] takes no arguments", kind.what);
        return Err(Error::new_spanned(attribute, message));
    }
    let function: ItemFn = parse2(item)?;
    let element = element_of(&function)?;
    let (mut names, mut types) = (Vec::new(), Vec::new());
    for argument in function.sig.inputs.iter().skip(1) {
        let FnArg::Typed(typed) = argument else {
            let message = format!("#[{}] is for functions, not for methods", kind.what);
            return Err(Error::new_spanned(argument, message));
        };
        let Pat::Ident(name) = &*typed.pat else {
            let message = format!("the parameters under #[{}] are plain names", kind.what);
            return Err(Error::new_spanned(&typed.pat, message));
        };
        names.push(name.ident.clone());
        types.push((*typed.ty).clone());
    }
    Ok(Read {
        function,
        element,
        names,
        types,
    })
}

impl Read {
    /// Code that takes `args` apart and calls the function with `first` and what was in them.
    pub(crate) fn call(&self, first: &TokenStream) -> TokenStream {
        let Read { names, types, .. } = self;
        let (name, texts, indices) = (&self.function.sig.ident, self.texts(), 0..names.len());
        quote! {
            #(let #names: #types = rt::decode(NAME, &args, #indices, #texts)?;)*
            super::#name(#first, #(#names),*)
        }
    }

    /// The same code for every element type, if the function is generic over it: the first argument that has elements
    /// says which.
    pub(crate) fn for_dtype(&self, body: TokenStream) -> Result<TokenStream> {
        let Some(element) = &self.element else {
            return Ok(body);
        };
        let found = self.types.iter().position(|ty| mentions(ty, element));
        let index = found.ok_or_else(|| {
            let message = "no parameter mentions this type, so a task could not tell which it is";
            Error::new_spanned(element, message)
        })?;
        let text = &self.texts()[index];
        Ok(quote! {
            let dtype = rt::dtype_of(NAME, &args, #index, #text)?;
            rt::with_dtype!(dtype, #element => { #body })
        })
    }

    fn texts(&self) -> Vec<String> {
        self.names.iter().map(ToString::to_string).collect()
    }

    /// The function, and the module with these entries in it.
    pub(crate) fn written(&self, kind: &Kind, entries: &TokenStream) -> TokenStream {
        let Read {
            function,
            element,
            names,
            types,
        } = self;
        let Kind {
            what,
            runtime,
            submitted,
        } = kind;
        let (name, visibility, texts) = (&function.sig.ident, &function.vis, self.texts());
        let signature = names.iter().zip(types);
        let signature = signature.map(|(name, ty)| format!("{name}: {}", quote! { #ty }));
        let signature = signature.collect::<Vec<_>>().join(", ");
        let doc = format!("The {what} [`{name}`](fn@{name}) as a task.");
        let task_doc =
            format!("[`{name}`](fn@super::{name}) with its arguments, to be submitted{submitted}.");
        let generics = element.as_ref().map(|element| quote! { <#element: rt::Element> });
        let example = element.as_ref().map(|element| quote! { type #element = f32; });
        quote! {
            #[allow(clippy::too_many_arguments, reason = "it takes what it needs")]
            #function

            #[doc = #doc]
            #visibility mod #name {
                #[allow(unused_imports, reason = "the parameter types are whatever the file has in scope")]
                use super::*;
                use #runtime as rt;

                const NAME: &str = ::core::module_path!();
                const SIGNATURE: u64 = rt::signature_hash(#signature);
                const PARAMS: &[rt::Param] = {
                    #example
                    &[#(rt::Param { name: #texts, tag: <#types as rt::Parameter>::TAG }),*]
                };

                #[doc = #task_doc]
                #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
                pub fn task #generics(#(#names: impl rt::Argument<#types>),*) -> rt::Task {
                    rt::Task {
                        kernel: rt::KernelId { name: NAME.into(), signature: SIGNATURE },
                        params: PARAMS,
                        args: ::std::vec![#(rt::Argument::<#types>::to_arg(&#names)),*],
                    }
                }

                #entries
            }
        }
    }
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

/// The entry in the program's registry of kernels, of a module that has `run` and `step`.
pub(crate) fn kernel_entry(step: &TokenStream) -> TokenStream {
    quote! {
        #[rt::linkme::distributed_slice(rt::KERNELS)]
        #[linkme(crate = rt::linkme)]
        static ENTRY: rt::KernelEntry =
            rt::KernelEntry { name: NAME, signature: SIGNATURE, params: PARAMS, run, step: #step };
    }
}
