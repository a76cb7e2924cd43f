//! The module that `#[kernel]` and `#[orchestration]` write beside a function: its identity, its parameters, and `task`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{
    Error, FnArg, GenericParam, ItemFn, Pat, PathArguments, Result, ReturnType, Type, TypeParamBound,
    WherePredicate, parse_quote, parse_quote_spanned, parse2,
};

/// A function with an attribute, read.
pub(crate) struct Read {
    pub(crate) function: ItemFn,
    /// What its author wrote where it now returns the kernels' result.
    written_result: Option<Type>,
    /// The type parameters that stand for element types.
    elements: Vec<Element>,
    /// The parameters after the first.
    names: Vec<Ident>,
    types: Vec<Type>,
}

/// A type parameter that stands for an element type.
pub(crate) struct Element {
    name: Ident,
    /// Whether it is one of the floats only.
    is_float: bool,
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

/// Reads a function. `check_shape` checks what is not about its element types. `others` is the number of type parameters
/// before those.
pub(crate) fn read(
    kind: &Kind,
    attribute: &TokenStream,
    item: TokenStream,
    check_shape: impl FnOnce(&ItemFn) -> Result<()>,
    others: usize,
) -> Result<Read> {
    if !attribute.is_empty() {
        let message = format!("#[{}] takes no arguments", kind.what);
        return Err(Error::new_spanned(attribute, message));
    }
    let mut function: ItemFn = parse2(item)?;
    check_shape(&function)?;
    let written_result = return_kernel_result(&mut function, &kind.runtime);
    let elements = elements(kind, &function, others)?;
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
        written_result,
        elements,
        names,
        types,
    })
}

/// Makes `Result<()>` mean the kernels' result, also in the body, whichever `Result` is in scope: a program's own is that of its `main`. Returns
/// what was written.
fn return_kernel_result(function: &mut ItemFn, runtime: &TokenStream) -> Option<Type> {
    let ReturnType::Type(_, output) = &mut function.sig.output else {
        return None;
    };
    let Type::Path(path) = &**output else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Result")?;
    match &last.arguments {
        PathArguments::AngleBracketed(arguments) if arguments.args.len() == 1 => {
            let (of, span) = (&arguments.args[0], last.ident.span());
            // Errors about the type point at the word that the author wrote.
            let kernels = parse_quote_spanned! { span => #runtime::Result<#of> };
            let written = std::mem::replace(&mut **output, kernels);
            function.block.stmts.insert(
                0,
                parse_quote! {
                    #[allow(dead_code, reason = "not every body names the type")]
                    type Result<T, E = #runtime::Error> = ::core::result::Result<T, E>;
                },
            );
            Some(written)
        }
        _ => None,
    }
}

/// The element types of a function: its type parameters after the first `others`.
fn elements(kind: &Kind, function: &ItemFn, others: usize) -> Result<Vec<Element>> {
    /// The function is compiled for every combination of them.
    const MOST_ELEMENT_TYPES: usize = 2;
    let generics = &function.sig.generics;
    let mut elements = Vec::new();
    for parameter in generics.params.iter().skip(others) {
        let GenericParam::Type(parameter) = parameter else {
            let message = format!("a parameter of #[{}] is an element type: `T: Element`", kind.what);
            return Err(Error::new_spanned(parameter, message));
        };
        let name = &parameter.ident;
        let predicates = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
        let clauses = predicates.filter_map(|predicate| match predicate {
            WherePredicate::Type(clause) if is_name(&clause.bounded_ty, name) => Some(&clause.bounds),
            _ => None,
        });
        let bounds: Vec<_> = clauses.flatten().chain(&parameter.bounds).collect();
        let is_float = bounds.iter().any(|bound| is_trait(bound, "Float"));
        if !is_float && !bounds.iter().any(|bound| is_trait(bound, "Element")) {
            let message = format!("say which element types: `{name}: Element` or `{name}: Float`");
            return Err(Error::new_spanned(parameter, message));
        }
        if elements.len() == MOST_ELEMENT_TYPES {
            let message = format!(
                "compiled for every combination of its element types, of which {MOST_ELEMENT_TYPES} are allowed; use a fixed type"
            );
            return Err(Error::new_spanned(parameter, message));
        }
        elements.push(Element {
            name: name.clone(),
            is_float,
        });
    }
    Ok(elements)
}

fn is_name(ty: &Type, name: &Ident) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident(name))
}

fn is_trait(bound: &TypeParamBound, name: &str) -> bool {
    let TypeParamBound::Trait(bound) = bound else {
        return false;
    };
    bound.path.segments.last().is_some_and(|last| last.ident == name)
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

    /// The same code for every combination of element types. Of each, the first argument that has such elements says
    /// which it is.
    pub(crate) fn for_dtypes(&self, body: TokenStream) -> Result<TokenStream> {
        self.elements
            .iter()
            .rev()
            .try_fold(body, |body, Element { name, is_float }| {
                let found = self.types.iter().position(|ty| mentions(ty, name));
                let index = found.ok_or_else(|| {
                    let message = "no parameter mentions this type, so a task could not tell which it is";
                    Error::new_spanned(name, message)
                })?;
                let text = &self.texts()[index];
                let of_dtype = if *is_float {
                    quote! {
                        rt::with_float!(dtype, #name => { #body })
                            .unwrap_or_else(|| Err(rt::float_needed(NAME, &args, #index, #text)))
                    }
                } else {
                    quote! { rt::with_dtype!(dtype, #name => { #body }) }
                };
                Ok(quote! {
                    let dtype = rt::dtype_of(NAME, &args, #index, #text)?;
                    #of_dtype
                })
            })
    }

    fn texts(&self) -> Vec<String> {
        self.names.iter().map(ToString::to_string).collect()
    }

    /// The function, and the module with these entries in it.
    pub(crate) fn written(&self, kind: &Kind, entries: &TokenStream) -> TokenStream {
        let Read {
            function,
            written_result,
            elements,
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
        let generics = elements.iter().map(|Element { name, is_float }| {
            let bound = if *is_float {
                quote! { Float }
            } else {
                quote! { Element }
            };
            quote! { #name: rt::#bound }
        });
        let generics = quote! { <#(#generics),*> };
        let examples = elements
            .iter()
            .map(|Element { name, .. }| quote! { type #name = f32; });
        // Or the author's import of `Result` would be reported as unused.
        let mention = written_result
            .iter()
            .map(|ty| quote! { const _: ::core::option::Option<#ty> = ::core::option::Option::None; });
        quote! {
            #[allow(clippy::too_many_arguments, reason = "it takes what it needs")]
            #function

            #(#mention)*

            #[doc = #doc]
            #visibility mod #name {
                #[allow(unused_imports, reason = "the parameter types are whatever the file has in scope")]
                use super::*;
                use #runtime as rt;

                const NAME: &str = ::core::module_path!();
                const SIGNATURE: u64 = rt::signature_hash(#signature);
                const PARAMS: &[rt::Param] = {
                    #(#examples)*
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
