//! The layers as the textbook has them: dense, in f64. Gradients are differences of the forward pass, so that no mistake in a
//! derivation can be on both sides.

use ringwork_parallel::Dense;

/// A matrix in f64.
#[derive(Clone, Debug)]
pub struct Wide {
    pub rows: usize,
    pub columns: usize,
    pub values: Vec<f64>,
}

impl Wide {
    pub fn of(matrix: &Dense) -> Wide {
        Wide {
            rows: matrix.shape().rows,
            columns: matrix.shape().columns,
            values: matrix.values().iter().map(|value| f64::from(*value)).collect(),
        }
    }

    fn zeros(rows: usize, columns: usize) -> Wide {
        Wide {
            rows,
            columns,
            values: vec![0.0; rows * columns],
        }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.columns + column]
    }
}

/// `x w^T + b`
pub fn linear(x: &Wide, w: &Wide, b: &Wide) -> Wide {
    let mut y = Wide::zeros(x.rows, w.rows);
    for row in 0..x.rows {
        for out in 0..w.rows {
            let sum: f64 = (0..x.columns).map(|k| x.at(row, k) * w.at(out, k)).sum();
            y.values[row * w.rows + out] = sum + b.values[out];
        }
    }
    y
}

/// `x` times the normal distribution function, by its formula with a hyperbolic tangent.
pub fn gelu(x: &Wide) -> Wide {
    let each = |x: &f64| {
        let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
        0.5 * x * (1.0 + u.tanh())
    };
    Wide {
        values: x.values.iter().map(each).collect(),
        ..*x
    }
}

pub fn mlp(x: &Wide, [up, up_bias, down, down_bias]: [&Wide; 4]) -> Wide {
    linear(&gelu(&linear(x, up, up_bias)), down, down_bias)
}

pub fn attention(
    x: &Wide,
    [w, b, out, out_bias]: [&Wide; 4],
    heads: usize,
    sequence: usize,
    causal: bool,
) -> Wide {
    let qkv = linear(x, w, b);
    let width = qkv.columns / 3 / heads;
    let mut attended = Wide::zeros(x.rows, heads * width);
    for token in 0..x.rows {
        let first = token / sequence * sequence;
        let last = if causal { token } else { first + sequence - 1 };
        for head in 0..heads {
            let part = |part: usize, token: usize, i: usize| qkv.at(token, (3 * head + part) * width + i);
            let score = |other: usize| {
                let dot: f64 = (0..width).map(|i| part(0, token, i) * part(1, other, i)).sum();
                (dot / (width as f64).sqrt()).exp()
            };
            let scores: Vec<f64> = (first..=last).map(score).collect();
            let total: f64 = scores.iter().sum();
            for i in 0..width {
                let mixed = scores
                    .iter()
                    .zip(first..)
                    .map(|(score, other)| score / total * part(2, other, i));
                attended.values[token * heads * width + head * width + i] = mixed.sum();
            }
        }
    }
    linear(&attended, out, out_bias)
}

pub fn embedding(ids: &[i32], table: &Wide) -> Wide {
    let rows = ids.iter().flat_map(|id| {
        let row = *id as usize;
        table.values[row * table.columns..(row + 1) * table.columns].iter()
    });
    Wide {
        rows: ids.len(),
        columns: table.columns,
        values: rows.copied().collect(),
    }
}

/// The gradient of `sum(dy * f(at))` with respect to `at`.
pub fn gradient(at: &Wide, dy: &Wide, f: impl Fn(&Wide) -> Wide) -> Wide {
    const STEP: f64 = 1e-5;
    let loss = |at: &Wide| -> f64 { f(at).values.iter().zip(&dy.values).map(|(y, dy)| y * dy).sum() };
    let mut moved = at.clone();
    let mut slope = |i: usize| {
        moved.values[i] = at.values[i] + STEP;
        let above = loss(&moved);
        moved.values[i] = at.values[i] - STEP;
        let below = loss(&moved);
        moved.values[i] = at.values[i];
        (above - below) / (2.0 * STEP)
    };
    Wide {
        values: (0..at.values.len()).map(&mut slope).collect(),
        ..*at
    }
}
