//! The network of an MLP head in training: forward pass, backward pass and AdamW, in f32.
//!
//! candle computes the matrix products. Everything else is one pass over a slice each, for which
//! candle's tensors would need about thirty.

use candle_core::{Device, Result, Tensor};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

/// Layers of an MLP with ReLU and dropout between them.
pub(super) struct Network {
    pub(super) layers: Vec<NetworkLayer>,
    pub(super) steps: i32,
}

/// A linear layer: y = x Wᵀ + b.
pub(super) struct NetworkLayer {
    inputs: usize,
    outputs: usize,
    /// `[outputs, inputs]`, row-major.
    pub(super) weight: Parameter,
    /// `[outputs]`.
    pub(super) bias: Parameter,
}

/// Trained values with AdamW's averages of their gradients.
pub(super) struct Parameter {
    pub(super) values: Vec<f32>,
    first_moment: Vec<f32>,
    second_moment: Vec<f32>,
}

/// Results of a forward pass that the backward pass needs.
pub(super) struct Activations {
    /// Inputs of each layer, `[B, inputs]`.
    inputs: Vec<Tensor>,
    /// Derivative of each layer's inputs, except the first's, by the outputs of the previous layer,
    /// `[B, inputs]`: the derivative of ReLU times the factor of dropout.
    pub(super) derivatives: Vec<Vec<f32>>,
    /// Outputs of the last layer, `[B, outputs]`, row-major.
    pub(super) outputs: Vec<f32>,
}

impl Network {
    /// Makes layers with `sizes[i]` inputs and `sizes[i + 1]` outputs. Weights and biases are
    /// uniform within ±1/sqrt(inputs), as in PyTorch's `Linear`.
    pub(super) fn new(sizes: &[usize], rng: &mut ChaCha8Rng) -> Self {
        let layer = |(&inputs, &outputs): (&usize, &usize)| {
            let bound = 1.0 / (inputs as f32).sqrt();
            let mut uniform = |count: usize| Parameter {
                values: (0..count).map(|_| (rng.random::<f32>() * 2.0 - 1.0) * bound).collect(),
                first_moment: vec![0.0; count],
                second_moment: vec![0.0; count],
            };
            let (weight, bias) = (uniform(outputs * inputs), uniform(outputs));
            NetworkLayer { inputs, outputs, weight, bias }
        };
        Self { layers: sizes.iter().zip(&sizes[1..]).map(layer).collect(), steps: 0 }
    }

    /// Runs the inputs `states` `[B, inputs]`, row-major, forward with dropout of this probability.
    pub(super) fn forward(
        &self,
        mut states: Vec<f32>,
        dropout: f64,
        rng: &mut ChaCha8Rng,
    ) -> Result<Activations> {
        let (kept, dropout) = ((1.0 / (1.0 - dropout)) as f32, dropout as f32);
        let (mut inputs, mut derivatives) = (Vec::new(), Vec::new());
        for (at, layer) in self.layers.iter().enumerate() {
            if at > 0 {
                let activate = |state: &mut f32| {
                    let factor = if rng.random::<f32>() < dropout { 0.0 } else { kept };
                    let derivative = if *state >= 0.0 { factor } else { 0.0 };
                    *state = state.max(0.0) * factor;
                    derivative
                };
                derivatives.push(states.iter_mut().map(activate).collect());
            }
            let rows = states.len() / layer.inputs;
            let input = Tensor::from_vec(states, (rows, layer.inputs), &Device::Cpu)?;
            states = to_values(&input.matmul(&layer.weight_tensor()?.t()?)?)?;
            for row in states.chunks_exact_mut(layer.outputs) {
                row.iter_mut().zip(&layer.bias.values).for_each(|(state, bias)| *state += bias);
            }
            inputs.push(input);
        }
        Ok(Activations { inputs, derivatives, outputs: states })
    }

    /// Runs backward from `gradient` `[B, outputs]`, row-major, of the loss by the outputs, and
    /// takes a step of AdamW.
    ///
    /// # Source
    /// Loshchilov and Hutter: Decoupled Weight Decay Regularization, 2019.
    pub(super) fn step(
        &mut self,
        activations: Activations,
        mut gradient: Vec<f32>,
        learning_rate: f64,
        weight_decay: f64,
    ) -> Result<()> {
        const BETAS: [f64; 2] = [0.9, 0.999];
        const EPSILON: f32 = 1e-8;
        self.steps += 1;
        let [beta1, beta2] = BETAS.map(|beta| beta as f32);
        let [rest1, rest2] = BETAS.map(|beta| (1.0 - beta) as f32);
        // The moments begin at 0.
        let [scale1, scale2] = BETAS.map(|beta| (1.0 / (1.0 - beta.powi(self.steps))) as f32);
        let decay = (1.0 - learning_rate * weight_decay) as f32;
        let learning_rate = learning_rate as f32;
        let update = |parameter: &mut Parameter, gradient: &[f32]| {
            let Parameter { values, first_moment, second_moment } = parameter;
            let moments = first_moment.iter_mut().zip(second_moment);
            for ((value, (m, v)), g) in values.iter_mut().zip(moments).zip(gradient) {
                *m = *m * beta1 + g * rest1;
                *v = *v * beta2 + g * g * rest2;
                let direction = *m * scale1 / ((*v * scale2).sqrt() + EPSILON);
                *value = *value * decay - direction * learning_rate;
            }
        };
        let Activations { inputs, mut derivatives, .. } = activations;
        for (layer, input) in self.layers.iter_mut().zip(&inputs).rev() {
            let mut by_bias = vec![0.0f32; layer.outputs];
            for row in gradient.chunks_exact(layer.outputs) {
                by_bias.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
            let by_outputs =
                Tensor::from_vec(gradient, (input.dim(0)?, layer.outputs), &Device::Cpu)?;
            let by_weight = to_values(&by_outputs.t()?.matmul(input)?)?;
            gradient = Vec::new();
            if let Some(derivative) = derivatives.pop() {
                gradient = to_values(&by_outputs.matmul(&layer.weight_tensor()?)?)?;
                gradient.iter_mut().zip(derivative).for_each(|(value, factor)| *value *= factor);
            }
            update(&mut layer.weight, &by_weight);
            update(&mut layer.bias, &by_bias);
        }
        Ok(())
    }
}

impl NetworkLayer {
    /// Copies the weight into a tensor `[outputs, inputs]`.
    fn weight_tensor(&self) -> Result<Tensor> {
        Tensor::from_slice(&self.weight.values, (self.outputs, self.inputs), &Device::Cpu)
    }
}

/// Copies the values out of a tensor, row-major.
fn to_values(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}
