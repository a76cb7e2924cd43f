//! What does not fit is refused before anything is computed.

use crate::chips::machine;
use ringwork_parallel::{
    AttentionShape, ChipGroup, ColumnParallelLinear, Dense, Error, Matrix, ParallelAttention,
    RowParallelLinear, Shape, Tokens, VocabParallelEmbedding,
};

fn ones(rows: usize, columns: usize) -> Dense {
    Dense::new(rows, columns, vec![1.0; rows * columns]).unwrap()
}

#[test]
fn weights_that_cannot_be_divided_are_refused_by_name() {
    let node = machine(2);
    let group = ChipGroup::open(&node, "tp", node.devices(), 64).unwrap();
    let refused = node.run(|orch| {
        let group = group.on(orch);
        let shape = AttentionShape {
            heads: 3,
            sequence: 2,
            causal: true,
        };
        Ok([
            ColumnParallelLinear::new(&group, &ones(3, 4), None, true).unwrap_err(),
            RowParallelLinear::new(&group, &ones(4, 3), None, true).unwrap_err(),
            VocabParallelEmbedding::new(&group, &ones(7, 4)).unwrap_err(),
            ParallelAttention::new(&group, shape, (&ones(18, 4), None), (&ones(4, 6), None)).unwrap_err(),
        ])
    });
    let refused = refused.unwrap();
    assert!(
        refused
            .iter()
            .all(|error| matches!(error, Error::Division { ranks: 2, .. })),
        "{refused:?}"
    );
    let wanted =
        "outputs of a column-parallel layer: 3 cannot be divided among 2 ranks; make it a multiple of 2";
    assert_eq!(refused[0].to_string(), wanted);
}

#[test]
fn matrices_of_another_shape_are_refused_with_both_shapes() {
    let node = machine(2);
    let group = ChipGroup::open(&node, "tp", node.devices(), 64).unwrap();
    let refused = node.run(|orch| {
        let group = group.on(orch);
        let layer = ColumnParallelLinear::new(&group, &ones(4, 6), None, false)?;
        let x = Matrix::replicated(&group, &ones(2, 5))?;
        let forward = layer.forward(&group, &x).unwrap_err();
        let x = Matrix::replicated(&group, &ones(2, 6))?;
        let dy = Matrix::replicated(&group, &ones(2, 4))?; // without `gather_output`, a rank's outputs are 2
        Ok([forward, layer.backward(&group, &x, &dy).unwrap_err()])
    });
    let [forward, backward] = refused.unwrap();
    let Error::Shape { got, wanted, .. } = forward else {
        panic!("{forward:?}")
    };
    assert_eq!(
        (got, wanted),
        (Shape { rows: 2, columns: 5 }, Shape { rows: 2, columns: 6 })
    );
    let Error::Shape { wanted, .. } = backward else {
        panic!("{backward:?}")
    };
    assert_eq!(wanted, Shape { rows: 2, columns: 2 });
}

#[test]
fn an_id_outside_the_vocabulary_fails_the_run_and_is_named() {
    let node = machine(2);
    let group = ChipGroup::open(&node, "tp", node.devices(), 64).unwrap();
    for id in [8, -1] {
        let ended = node.run(|orch| {
            let group = group.on(orch);
            let embedding = VocabParallelEmbedding::new(&group, &ones(8, 2))?;
            Ok(embedding.forward(&group, &Tokens::new(&group, &[7, id])?)?)
        });
        let message = ended.unwrap_err().to_string();
        let wanted = format!("token 1 has the id {id}; the vocabulary has 8");
        assert!(
            message.contains("kernel `embed`") && message.contains(&wanted),
            "{message}"
        );
    }
}

#[test]
fn a_number_of_values_that_is_not_the_shape_is_refused() {
    assert!(matches!(
        Dense::new(2, 3, vec![0.0; 5]),
        Err(Error::Argument { .. })
    ));
}
