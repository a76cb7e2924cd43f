//! Calls that make no sense are refused with a cure, before they have had any effect.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use ringwork_collectives::window::{self, Spread};
use ringwork_collectives::{
    Algorithm, Team, all_gather, all_reduce, all_to_all, barrier, broadcast, gather, reduce, reduce_scatter,
    scatter,
};
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{
    Barrier, Dtype, Error, ErrorKind, In, InOut, Out, Rank, ReduceOp::Sum, Result, Signals, Span,
};
use std::future::Future;
use std::rc::Rc;
use support::calls::typed;
use support::{Schedule, World};

/// Private memory of one rank: `x` of 12 elements, and `y` of 12.
#[derive(Clone, Copy)]
struct Memory {
    x: In,
    y: Out,
}

impl Memory {
    fn x(&self, len: usize) -> In {
        self.x.slice(0..len).unwrap()
    }

    fn y(&self, len: usize) -> Out {
        self.y.slice(0..len).unwrap()
    }
}

/// The error of a call made by rank 1 of 3 alone. Nobody else answers, so a call that does more than
/// check would wait for ever; and a barrier of all three afterwards shows that no counter has moved.
fn refusal<F: Future<Output = Result<()>> + 'static>(
    half: usize,
    call: impl Fn(SteppedCore, Team, Memory) -> F + Copy + 'static,
) -> Error {
    let world = Rc::new(World::new(3, 2 * half * 4));
    let (x, y) = (
        world.private_buffer(Dtype::F32, 12),
        world.private_buffer(Dtype::F32, 12),
    );
    let before = world.machine.bytes(y[1]);
    let seen = Rc::new(std::cell::RefCell::new(None));
    let outcome = world.run_well(Schedule::Random(1), |core, rank| {
        let (team, seen) = (world.team::<f32>(rank), seen.clone());
        let memory = Memory {
            x: In::of_span(x[rank.0 as usize]),
            y: Out::of_span(y[rank.0 as usize]),
        };
        Box::pin(async move {
            if rank == Rank(1) {
                *seen.borrow_mut() = call(core.clone(), team, memory).await.err();
            }
            barrier(&core, team).await
        })
    });
    assert_eq!(outcome, Ok(()));
    assert_eq!(world.machine.bytes(y[1]), before);
    seen.take().expect("the call must be refused")
}

#[test]
fn lengths_that_do_not_fit_are_named_with_what_is_needed() {
    for algorithm in ringwork_collectives::all_reduce::BY_TEAM {
        let error = refusal(8, move |core, team, m| async move {
            all_reduce(&core, team, m.x(6), m.y(5), Sum, algorithm).await
        });
        let text = error.to_string();
        assert!(text.ends_with("`y` has 5 elements where 6 are needed"), "{text}");
    }
    // Part 1 of 10 elements on 3 ranks has 3.
    let wrong: [(Error, &str); 7] = [
        (
            refusal(
                8,
                |c, t, m| async move { all_gather(&c, t, m.x(4), m.y(10)).await },
            ),
            "`x`, my part of the gathered `y`, has 4 elements where 3 are needed",
        ),
        (
            refusal(8, |c, t, m| async move {
                reduce_scatter(&c, t, m.x(10), m.y(4), Sum).await
            }),
            "`y`, my part of the reduced `x`, has 4 elements where 3 are needed",
        ),
        (
            refusal(
                8,
                |c, t, m| async move { all_to_all(&c, t, m.x(10), m.y(10)).await },
            ),
            "`y`, my part of `x` from every rank, has 10 elements where 9 are needed",
        ),
        (
            refusal(8, |c, t, m| async move {
                broadcast(&c, t, m.x(4), m.y(5), Rank(1)).await
            }),
            "`x` on the root has 4 elements where 5 are needed",
        ),
        (
            refusal(8, |c, t, m| async move {
                reduce(&c, t, m.x(4), m.y(5), Sum, Rank(1)).await
            }),
            "`y` on the root has 5 elements where 4 are needed",
        ),
        (
            refusal(8, |c, t, m| async move {
                gather(&c, t, m.x(4), m.y(11), Rank(1)).await
            }),
            "`y` on the root, one `x` per rank, has 11 elements where 12 are needed",
        ),
        (
            refusal(8, |c, t, m| async move {
                scatter(&c, t, m.x(11), m.y(4), Rank(1)).await
            }),
            "`x` on the root, one `y` per rank, has 11 elements where 12 are needed",
        ),
    ];
    for (error, text) in wrong {
        assert!(matches!(error.kind(), ErrorKind::LengthMismatch { .. }));
        assert!(error.to_string().ends_with(text), "{error}");
    }
}

#[test]
fn a_window_reduce_scatter_into_a_wrong_length_is_refused() {
    let error = refusal(5, |core, team, m| async move {
        window::reduce_scatter(&core, team.meet(), team.scratch(), m.y(4), Sum).await
    });
    let text = "`y`, my part of the reduced `data`, has 4 elements where 3 are needed";
    assert!(error.to_string().ends_with(text), "{error}");
}

#[test]
fn a_root_that_is_no_member_is_refused() {
    let root = Rank(3);
    for error in [
        refusal(8, move |c, t, m| async move {
            broadcast(&c, t, m.x(4), m.y(4), root).await
        }),
        refusal(8, move |c, t, m| async move {
            reduce(&c, t, m.x(4), m.y(4), Sum, root).await
        }),
        refusal(8, move |c, t, m| async move {
            gather(&c, t, m.x(4), m.y(12), root).await
        }),
        refusal(8, move |c, t, m| async move {
            scatter(&c, t, m.x(12), m.y(4), root).await
        }),
        refusal(8, move |c, t, _| async move {
            window::broadcast(&c, t.meet(), t.scratch(), root).await
        }),
    ] {
        let text = "there is no rank 3 in a domain of 3";
        assert!(error.to_string().ends_with(text), "{error}");
    }
}

#[test]
fn a_scratch_that_is_too_small_says_how_large_it_must_be() {
    for error in [
        refusal(1, |c, t, m| async move {
            reduce_scatter(&c, t, m.x(9), m.y(3), Sum).await
        }),
        refusal(
            1,
            |c, t, m| async move { all_to_all(&c, t, m.x(9), m.y(9)).await },
        ),
        refusal(1, |c, t, m| async move {
            scatter(&c, t, m.x(9), m.y(3), Rank(1)).await
        }),
    ] {
        let text = "the scratch holds 1 elements per half, and this collective over 3 ranks needs at least 2; \
                    declare a scratch of 4 elements or more";
        assert!(error.to_string().ends_with(text), "{error}");
    }
    // Packets have room of their own.
    for algorithm in ringwork_collectives::all_reduce::BY_TEAM
        .into_iter()
        .filter(|algorithm| *algorithm != Algorithm::Packet)
    {
        let error = refusal(0, move |core, team, m| async move {
            all_reduce(&core, team, m.x(1), m.y(1), Sum, algorithm).await
        });
        let text = "needs at least 1; declare a scratch of 2 elements or more";
        assert!(error.to_string().ends_with(text), "{error}");
    }
}

#[test]
fn counts_too_large_to_multiply_are_refused_instead_of_wrapping() {
    let error = refusal(8, |core, team, m| async move {
        let span = Span {
            len: u64::MAX / 2,
            ..m.x.span()
        };
        gather(&core, team, In::of_span(span), m.y, Rank(1)).await
    });
    assert!(error.to_string().contains("too many to count"), "{error}");
}

#[test]
fn one_rank_needs_no_scratch_and_no_elements_need_nobody() {
    let world = Rc::new(World::new(1, 0));
    let data = world.private_buffer(Dtype::F32, 3);
    let outcome = world.run_well(Schedule::Random(0), |core, rank| {
        let team = world.team::<f32>(rank);
        let both: InOut<f32> = typed(data[0]);
        Box::pin(async move {
            for algorithm in ringwork_collectives::all_reduce::BY_TEAM {
                all_reduce(&core, team, both.into(), both.into(), Sum, algorithm).await?;
            }
            all_to_all(&core, team, both.into(), both.into()).await
        })
    });
    assert_eq!(outcome, Ok(()));

    let world = Rc::new(World::new(2, 0));
    let data = world.private_buffer(Dtype::F32, 0);
    let outcome = world.run_well(Schedule::Random(0), |core, rank| {
        let team = world.team::<f32>(rank);
        let none: InOut<f32> = typed(data[rank.0 as usize]);
        Box::pin(async move {
            if rank == Rank(0) {
                return Ok(());
            }
            for algorithm in ringwork_collectives::all_reduce::BY_TEAM {
                all_reduce(&core, team, none.into(), none.into(), Sum, algorithm).await?;
            }
            window::all_reduce(&core, team.meet(), team.scratch(), Sum, Spread::Pull).await
        })
    });
    assert_eq!(outcome, Ok(()));
}

#[test]
fn a_team_of_things_from_different_domains_is_refused() {
    let (world, other) = (World::new(3, 64), World::new(2, 64));
    let (me, peer) = (Rank(1), Rank(0));
    let text =
        |meet: Barrier, steps: Signals, scratch| Team::new(scratch, meet, steps).unwrap_err().to_string();
    let scratch = world.scratch::<f32>(me);
    assert!(text(other.meet(me), world.steps(me), scratch).ends_with(
        "the scratch is held by rank 1 of 3, the barrier by rank 1 of 2; open both on one domain"
    ));
    assert!(text(world.meet(me), world.steps(peer), scratch).ends_with(
        "the step signals are held by rank 0 of 3, the barrier by rank 1 of 3; open both on one domain"
    ));
    assert!(
        text(world.meet(me), world.steps(me), scratch.on(peer).unwrap()).ends_with(
            "the scratch is that of rank 0, but this is rank 1; pass the buffer itself, without `on`"
        )
    );
    let one = Signals {
        count: 1,
        ..world.steps(me)
    };
    assert!(
        text(world.meet(me), one, scratch)
            .ends_with("a team needs 4 step signals and got 1; declare that many")
    );
}
