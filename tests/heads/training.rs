//! Training: reproducible byte by byte, clear about what it cannot use.

use std::process::Command;

use anyhow::{Context, Result};
use polysift::Error;
use polysift::config::{Checkpoint, HeadConfig, HeadKind, HeadOutput, Loss, Mode, TrainingConfig};
use polysift::head::{Head, LabelCounts, Provenance};
use polysift::input::Split;
use polysift::metrics::Metrics;
use polysift::progress::Stop;
use polysift::train::{Samples, TrainingRequest, train_head};

/// Where a child process writes its head.
const CHILD_OUTPUT: &str = "POLYSIFT_TEST_OUTPUT";

/// A number near the normal distribution, the `index`th of `stream`: the four 16-bit parts of a
/// splitmix64 output, summed and standardised. The same bits on every machine.
fn normal(stream: u64, index: u64) -> f64 {
    let mut z = (stream << 40).wrapping_add(index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    let sum: u64 = (0..4).map(|part| (z >> (16 * part)) & 0xffff).sum();
    (sum as f64 - 131_070.0) / 37_837.2
}

/// Two classes, each a mixture of four overlapping Gaussians whose centres lie `distance` standard
/// deviations from the origin, all in `hidden_size` dimensions.
pub(super) fn mixture(num_samples: usize, hidden_size: usize, distance: f64) -> Samples {
    let mut samples = Samples { hidden_size, ..Samples::default() };
    for sample in 0..num_samples as u64 {
        let (label, component) = (sample % 2, sample / 2 % 4);
        samples.ids.push(format!("<urn:{sample}>"));
        samples.texts.push(format!("sample {sample}"));
        samples.labels.push(label as f32);
        for axis in 0..hidden_size as u64 {
            let centre =
                normal(1 + label * 4 + component, axis) * distance / (hidden_size as f64).sqrt();
            let value = centre + normal(16, sample * hidden_size as u64 + axis);
            samples.embeddings.push(value as f32);
        }
    }
    samples
}

/// The same samples in another order.
fn reordered(samples: &Samples) -> Samples {
    let n = samples.ids.len();
    // 7 has no factor in common with the numbers of samples used here.
    let order = (0..n).map(|i| (i * 7 + 3) % n);
    let mut other = Samples { hidden_size: samples.hidden_size, ..Samples::default() };
    for row in order {
        let width = samples.hidden_size;
        other.ids.push(samples.ids[row].clone());
        other.texts.push(samples.texts[row].clone());
        other.labels.push(samples.labels[row]);
        other.embeddings.extend(&samples.embeddings[row * width..(row + 1) * width]);
    }
    other
}

/// Trains.
pub(super) fn train(
    samples: &Samples,
    name: &str,
    config: &HeadConfig,
    seed: u64,
) -> polysift::Result<Head> {
    let provenance = Provenance {
        encoder_digest: "e".into(),
        model: "m".into(),
        data_digests: vec!["b".into(), "a".into()],
        ..Provenance::default()
    };
    let (language, stop) = ("deu_Latn", Stop::of_process());
    train_head(&TrainingRequest { name, language, config, samples, seed, provenance, stop })
}

/// Two passes with one weight decay.
fn small_training(batch_size: usize) -> TrainingConfig {
    TrainingConfig {
        epochs: Some(2),
        batch_size: Some(batch_size),
        weight_decay: Some(0.01),
        ..TrainingConfig::default()
    }
}

/// A config of little work.
fn small_config(kind: HeadKind) -> HeadConfig {
    HeadConfig {
        kind,
        hidden: Some(vec![8]),
        references: Some(20),
        training: small_training(32),
        ..HeadConfig::default()
    }
}

/// A head for tests of files.
pub(super) fn small_head(kind: HeadKind) -> Result<Head> {
    Ok(train(&mixture(200, 12, 3.0), "quality", &small_config(kind), 1)?)
}

#[test]
fn the_order_of_the_samples_does_not_change_the_file() -> Result<()> {
    let mut samples = mixture(200, 12, 3.0);
    // Duplicates by id and by text, with and without the same label.
    samples.ids[10] = samples.ids[20].clone();
    samples.ids[11] = samples.ids[20].clone();
    samples.texts[13] = samples.texts[12].clone();
    for config in [small_config(HeadKind::Mlp), small_config(HeadKind::Cosine)] {
        let one = train(&samples, "quality", &config, 1)?;
        let two = train(&reordered(&samples), "quality", &config, 1)?;
        assert!(one.to_bytes()? == two.to_bytes()?, "{config:?}");
        assert_eq!(one.digest, two.digest);
        let other = train(&samples, "quality", &config, 2)?;
        assert_ne!(one.digest, other.digest);
    }
    Ok(())
}

/// Started by the test below, does nothing without its variable. Large enough for candle to cut its products into pieces by the number of threads.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn child_that_trains() -> Result<()> {
    let Ok(output) = std::env::var(CHILD_OUTPUT) else {
        return Ok(());
    };
    let config = HeadConfig {
        hidden: Some(vec![96, 0]),
        training: small_training(200),
        ..HeadConfig::default()
    };
    let head = train(&mixture(1000, 100, 3.0), "toxicity", &config, 9)?;
    std::fs::write(output, head.to_bytes()?)?;
    Ok(())
}

#[test]
fn the_number_of_threads_does_not_change_the_file() -> Result<()> {
    let dir = tempfile::TempDir::new()?;
    let mut files = Vec::new();
    for threads in ["1", "2", "5"] {
        let path = dir.path().join(threads);
        let status = Command::new(std::env::current_exe()?)
            .args(["--exact", "heads::training::child_that_trains", "--ignored"])
            .env("RAYON_NUM_THREADS", threads)
            .env(CHILD_OUTPUT, &path)
            .output()?;
        assert!(status.status.success(), "{status:?}");
        files.push(std::fs::read(path)?);
    }
    assert!(files[0] == files[1] && files[0] == files[2]);
    Ok(())
}

#[test]
fn the_card_tells_how_the_head_was_made() -> Result<()> {
    let mut samples = mixture(203, 12, 3.0);
    samples.embeddings[5] = f32::NAN;
    let head = train(&samples, "quality", &small_config(HeadKind::Mlp), 1)?;
    let card = &head.card;
    assert_eq!(card.language.as_deref(), Some("deu_Latn"));
    let record = card.training.as_ref().context("no record")?;
    assert_eq!((record.seed, record.excluded_samples), (1, 1));
    let total: usize = record.samples.values().map(LabelCounts::num_samples).sum();
    assert_eq!(total, 202);
    assert_eq!(record.epochs.len(), 2);
    let complete = |m: &Metrics| m.loss.is_some() && m.accuracy.is_some() && m.roc_auc.is_some();
    for epoch in &record.epochs {
        assert!(epoch.train.as_ref().is_some_and(complete));
        assert!(epoch.validation.as_ref().is_some_and(complete));
    }
    let kept = record.kept_epoch.context("no epoch")?;
    assert_eq!(record.validation, record.epochs[kept - 1].validation);
    assert!(record.linear_test.as_ref().is_some_and(complete));
    let curve: Vec<usize> = record.learning_curve.iter().map(|point| point.num_samples).collect();
    // A fourth and a half of either class, rounded down.
    assert_eq!(curve, [40, 80, 162]);
    assert_eq!(record.learning_curve.last().map(|point| point.test), record.test);
    assert!(record.test.as_ref().is_some_and(complete));
    let digests = card.provenance.as_ref().map(|p| p.data_digests.clone());
    assert_eq!(digests.context("no provenance")?, ["a", "b"]);

    let cosine = train(&samples, "quality", &small_config(HeadKind::Cosine), 1)?;
    assert_eq!(cosine.card.spec.layer_sizes, [12, 20]);
    let all = HeadConfig { references: None, ..small_config(HeadKind::Cosine) };
    let all = train(&samples, "quality", &all, 1)?;
    let counts = all.card.references.context("no counts")?;
    assert_eq!(all.card.spec.layer_sizes, [12, counts.available]);
    assert_eq!(counts.requested, 8192);
    Ok(())
}

/// Against NumPy. Rounded to f32 are the mean, the differences and the unit vectors: each moves a vector by some 1e-7
/// of its length, on both sides of a product.
#[test]
fn centred_similarities_agree_with_numpy() -> Result<()> {
    use polysift::config::Centering;
    let golden = candle_core::safetensors::load(
        super::golden("centred.safetensors"),
        &candle_core::Device::Cpu,
    )?;
    let get = |name: &str| golden.get(name).context("not in the file");
    let labels: Vec<u8> = super::values(get("labels")?)?;
    let samples = Samples {
        ids: (0..labels.len()).map(|i| format!("s{i}")).collect(),
        texts: (0..labels.len()).map(|i| format!("sample {i}")).collect(),
        labels: labels.iter().map(|&label| f32::from(label)).collect(),
        embeddings: super::values(get("embeddings")?)?,
        hidden_size: 12,
        splits: vec![Some(Split::Train); labels.len()],
        ..Samples::default()
    };
    let queries: Vec<f32> = super::values(get("queries")?)?;
    let offsets: Vec<usize> = (0..=queries.len() / 12).collect();
    let dir = tempfile::TempDir::new()?;
    let kind = HeadKind::Cosine;
    let config = HeadConfig { kind, ..HeadConfig::default() };
    let head = train(&samples, "quality", &config, 1)?;
    let counts = head.card.references.context("no counts")?;
    assert_eq!((counts.center, counts.center_rows), (Some(Centering::Mean), Some(30)));
    let scores = head.score(&queries, &offsets)?;
    for (row, expected) in super::values::<f64>(get("mean")?)?.into_iter().enumerate() {
        let score = scores[row].context("no score")?.score;
        assert!((f64::from(score) - expected).abs() < 2e-6, "{row}: {score} {expected}");
    }
    let path = dir.path().join("head");
    std::fs::write(&path, head.to_bytes()?)?;
    let read = Head::load(&path, "quality", &HeadConfig::default())?;
    assert_eq!((&read.card, read.score(&queries, &offsets)?), (&head.card, scores.clone()));
    // Without its card it is a foreign head, which has been centred already.
    let path = dir.path().join("foreign.safetensors");
    let own = head.to_bytes()?;
    let tensors = safetensors::SafeTensors::deserialize(&own)?;
    std::fs::write(&path, safetensors::serialize(tensors.tensors(), None)?)?;
    let foreign = Head::load(&path, "quality", &HeadConfig::default())?;
    let counts = foreign.card.references.context("no counts")?;
    assert_eq!((counts.center, counts.center_rows), (Some(Centering::Mean), None));
    for (one, other) in foreign.score(&queries, &offsets)?.iter().zip(&scores) {
        let (one, other) = one.zip(*other).context("no score")?;
        // Normalised once more: a rounding of each reference.
        assert!((one.score - other.score).abs() < 2e-7, "{one:?} {other:?}");
    }
    let none = HeadConfig {
        center: Some(Centering::None),
        references: None,
        ..small_config(HeadKind::Cosine)
    };
    let head = train(&samples, "quality", &none, 1)?;
    let bytes = head.to_bytes()?;
    assert_eq!(safetensors::SafeTensors::deserialize(&bytes)?.names(), ["references"]);
    assert_eq!(head.card.references.context("no counts")?.center, None);
    // A positive is one of its references.
    let score = head.score(&samples.embeddings[30 * 12..31 * 12], &[0, 1])?[0].context("none")?;
    assert!((score.score - 1.0).abs() < 2e-7, "{score:?}");
    Ok(())
}

#[test]
fn the_best_epoch_is_the_earliest_of_equals() -> Result<()> {
    let training = TrainingConfig {
        epochs: Some(6),
        batch_size: Some(16),
        learning_rate: Some(0.05),
        weight_decay: Some(0.01),
        checkpoint: Some(Checkpoint::Best),
        ..TrainingConfig::default()
    };
    let config = HeadConfig { hidden: Some(vec![8]), training, ..HeadConfig::default() };
    let head = train(&mixture(300, 12, 2.5), "quality", &config, 4)?;
    let record = head.card.training.clone().context("no record")?;
    let accuracies: Vec<f64> = record
        .epochs
        .iter()
        .map(|e| e.validation.and_then(|m| m.accuracy).unwrap_or_default())
        .collect();
    let best = accuracies.iter().copied().fold(0.0, f64::max);
    let earliest = accuracies.iter().position(|&a| a >= best).context("no epoch")? + 1;
    assert_eq!(record.kept_epoch, Some(earliest), "{accuracies:?}");
    assert!(earliest < 6, "choose another seed: the last epoch is the best, {accuracies:?}");
    assert_eq!(record.validation, record.epochs[earliest - 1].validation);
    Ok(())
}

#[test]
fn what_cannot_be_trained_on_is_an_error_with_counts() -> Result<()> {
    let config = small_config(HeadKind::Mlp);
    let good = mixture(20, 4, 3.0);
    let one_class = Samples { labels: vec![1.0; 20], ..good.clone() };
    let few = mixture(9, 4, 3.0);
    let mut not_finite = mixture(12, 4, 3.0);
    not_finite.embeddings[..12].fill(f32::INFINITY);
    let mut zero = good.clone();
    zero.embeddings.fill(0.0);
    let cosine = small_config(HeadKind::Cosine);
    for (samples, config, expected) in [
        (&one_class, &config, "20 positive and 0 negative"),
        (&few, &config, "4 positive and 5 negative"),
        (&not_finite, &config, "3 more"),
        (&zero, &cosine, "zero vectors"),
    ] {
        let error = train(samples, "quality", config, 1).err().context(expected)?;
        assert!(matches!(error, Error::Training { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    Ok(())
}

#[test]
fn weights_that_diverge_are_an_error() -> Result<()> {
    let mut config = small_config(HeadKind::Mlp);
    config.training.learning_rate = Some(1e38);
    let error = train(&mixture(100, 4, 3.0), "quality", &config, 1).err().context("trained")?;
    assert!(error.to_string().contains("learning_rate"), "{error}");
    Ok(())
}

#[test]
fn a_stop_ends_training() {
    let stop = Stop::default();
    stop.ask(15);
    let (samples, config) = (mixture(100, 4, 3.0), small_config(HeadKind::Mlp));
    let request = TrainingRequest {
        name: "quality",
        language: "und",
        config: &config,
        samples: &samples,
        seed: 1,
        provenance: Provenance::default(),
        stop: &stop,
    };
    assert!(matches!(train_head(&request), Err(Error::Stopped)));
}

#[test]
fn a_softmax_head_learns_the_class_it_scores() -> Result<()> {
    let samples = mixture(1000, 24, 5.0);
    for class in [0, 1, 2] {
        let mut config = small_config(HeadKind::Mlp);
        config.output = Some(HeadOutput::Class(class));
        config.training.learning_rate = Some(1e-2);
        let head = train(&samples, "toxicity", &config, 1)?;
        let test = head.card.training.as_ref().and_then(|t| t.test).context("no test")?;
        assert!(test.roc_auc.is_some_and(|auc| auc > 0.9), "{class}: {test:?}");
    }
    Ok(())
}

#[test]
fn published_mode_trains_as_the_published_code_and_says_so() -> Result<()> {
    let config = HeadConfig {
        training: TrainingConfig { mode: Mode::Published, ..TrainingConfig::default() },
        ..HeadConfig::default()
    };
    let samples = mixture(1000, 12, 5.0);
    let head = train(&samples, "toxicity", &config, 1)?;
    assert_eq!(head.card.spec.layer_sizes, [12, 12, 2]);
    let record = head.card.training.clone().context("no record")?;
    let constants = record.hyperparameters.context("no constants")?;
    assert_eq!((constants.mode, constants.batch_size), (Mode::Published, Some(64)));
    assert_eq!(constants.checkpoint, Some(Checkpoint::LowestLoss));
    let counts = |split: &str| record.samples[split].num_samples();
    assert_eq!((counts("train"), counts("validation"), counts("test")), (900, 100, 0));
    assert_eq!(record.test, None);
    // 15 batches of at most 64 make 900, six times.
    let schedule = record.schedule.context("no schedule")?;
    assert_eq!((schedule.warm_up_steps, schedule.steps), (200, 90));
    let losses: Vec<f64> = record.epochs.iter().filter_map(|e| e.published_loss).collect();
    assert_eq!(losses.len(), 6);
    // The bounds of a loss that counts softmax twice: ln(1 + 1/e) and ln(1 + e).
    assert!(losses.iter().all(|&loss| loss > 0.3132 && loss < 1.3133), "{losses:?}");
    let lowest = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let kept = record.kept_epoch.context("no epoch")?;
    assert!(losses[kept - 1] <= lowest, "{kept} {losses:?}");
    // The card has the loss that decided, which is not the validation loss of the head; those of the
    // epochs are rounded.
    let kept_loss = record.kept_loss.context("no loss")?;
    assert!((kept_loss - lowest).abs() <= 5e-7, "{kept_loss} {losses:?}");
    assert!(losses[5] < losses[0], "{losses:?}");

    let again = train(&reordered(&samples), "toxicity", &config, 1)?;
    assert!(again.to_bytes()? == head.to_bytes()?);
    Ok(())
}

#[test]
fn a_toxicity_head_keeps_a_test_split_and_the_epoch_of_the_lowest_loss() -> Result<()> {
    let head = train(&mixture(1000, 12, 5.0), "toxicity", &HeadConfig::default(), 1)?;
    let record = head.card.training.clone().context("no record")?;
    let constants = record.hyperparameters.context("no constants")?;
    assert_eq!((constants.mode, constants.batch_size), (Mode::Default, Some(100)));
    assert_eq!(constants.checkpoint, Some(Checkpoint::LowestLoss));
    assert!(record.schedule.is_none() && record.test.is_some());
    assert!(record.epochs.iter().all(|epoch| epoch.published_loss.is_none()));
    let losses = record.epochs.iter().filter_map(|e| e.validation.and_then(|m| m.loss));
    let lowest = losses.fold(f64::INFINITY, f64::min);
    let kept_loss = record.kept_loss.context("no loss")?;
    assert!((kept_loss - lowest).abs() <= 5e-7, "{kept_loss} {lowest}");
    Ok(())
}

fn test_auc(head: &Head) -> Result<f64> {
    let test = head.card.training.as_ref().and_then(|training| training.test);
    test.and_then(|test| test.roc_auc).context("no test")
}

#[test]
fn a_small_set_is_learned_where_the_published_constants_starve() -> Result<()> {
    let samples = mixture(400, 24, 3.5);
    let trained = |mode| {
        let training = TrainingConfig { mode, ..TrainingConfig::default() };
        train(&samples, "quality", &HeadConfig { training, ..HeadConfig::default() }, 1)
    };
    let (fitting, published) = (trained(Mode::Default)?, trained(Mode::Published)?);
    let (auc, starved) = (test_auc(&fitting)?, test_auc(&published)?);
    assert!(auc > starved + 0.02, "{auc} {starved}");
    let record = fitting.card.training.clone().context("no record")?;
    // Each component is on its own side of a plane only for an MLP.
    let logistic = record.linear_test.and_then(|test| test.roc_auc).context("no baseline")?;
    assert!(auc > logistic, "{auc} {logistic}");
    let constants = record.hyperparameters.context("no constants")?;
    let decay = constants.weight_decay.context("no decay")?;
    assert!(TrainingConfig::WEIGHT_DECAYS.contains(&decay), "{decay}");
    let published = published.card.training.clone().context("no record")?;
    assert!(published.learning_curve.is_empty() && published.linear_test.is_none());
    Ok(())
}

#[test]
fn neither_offset_nor_scale_of_an_input_matters() -> Result<()> {
    let samples = mixture(300, 12, 3.0);
    let mut moved = samples.clone();
    for (at, value) in moved.embeddings.iter_mut().enumerate() {
        let scale = [0.001, 1.0, 300.0][at % 3];
        *value = *value * scale + 7.0 * scale;
    }
    for kind in [HeadKind::Mlp, HeadKind::Logistic] {
        let config = HeadConfig { kind, ..HeadConfig::default() };
        let [one, other] = [&samples, &moved].map(|samples| {
            let samples = Samples { splits: splits(300), ..samples.clone() };
            test_auc(&train(&samples, "quality", &config, 1)?)
        });
        let (one, other) = (one?, other?);
        // 30 pairs of 900 may change their order by rounding.
        assert!(one > 0.7 && (one - other).abs() <= 30.0 / 900.0, "{kind:?}: {one} {other}");
    }
    Ok(())
}

/// Splits by place, so that they do not depend on the values: a fifth for validation, a fifth for the test.
fn splits(num_samples: usize) -> Vec<Option<Split>> {
    let by_place = |i| match i / 2 % 5 {
        0 => Split::Validation,
        1 => Split::Test,
        _ => Split::Train,
    };
    (0..num_samples).map(|i| Some(by_place(i))).collect()
}

#[test]
fn a_logistic_head_is_a_linear_layer_with_a_penalty_that_was_chosen() -> Result<()> {
    let config = HeadConfig { kind: HeadKind::Logistic, ..HeadConfig::default() };
    let samples = mixture(300, 12, 3.0);
    let head = train(&samples, "toxicity", &config, 1)?;
    assert_eq!((head.card.spec.kind, head.card.spec.output), (HeadKind::Mlp, HeadOutput::Sigmoid));
    assert_eq!(head.card.spec.layer_sizes, [12, 1]);
    let record = head.card.training.clone().context("no record")?;
    assert!(record.inverse_penalty.is_some_and(|c| (1e-4..=10.0).contains(&c)));
    // It is its own baseline.
    assert_eq!(record.linear_test, record.test);
    assert_eq!(record.learning_curve.len(), 3);
    let again = train(&reordered(&samples), "toxicity", &config, 1)?;
    assert!(again.to_bytes()? == head.to_bytes()?);
    Ok(())
}

#[test]
fn a_part_of_the_samples_without_weight_is_no_point_of_the_curve() -> Result<()> {
    for kind in [HeadKind::Logistic, HeadKind::Mlp] {
        let mut samples = mixture(300, 12, 3.0);
        samples.weights = (0..300).map(|row| f32::from(u8::from(row % 50 < 2))).collect();
        let config = HeadConfig { kind, ..HeadConfig::default() };
        let head = train(&samples, "toxicity", &config, 1)?;
        let record = head.card.training.clone().context("no record")?;
        assert!(record.test.is_some_and(|test| test.roc_auc.is_some_and(f64::is_finite)));
        let curve = record.learning_curve.iter().map(|point| point.test.loss);
        assert!(curve.flatten().all(f64::is_finite), "{kind:?}");
    }
    Ok(())
}

/// Grades around `middle` with steps of `step`, from the place along the first axis.
fn graded(num_samples: usize, middle: f32, step: f32) -> Samples {
    let mut samples = mixture(num_samples, 12, 0.0);
    let grade =
        |row: usize| (samples.embeddings[row * 12] * 1.2).round().clamp(-2.0, 2.0) * step + middle;
    samples.labels = (0..num_samples).map(grade).collect();
    samples
}

/// Settings of a head that gives grades.
fn of_loss(kind: HeadKind, loss: Option<Loss>) -> HeadConfig {
    let training = TrainingConfig { loss, epochs: Some(60), ..TrainingConfig::default() };
    HeadConfig {
        kind,
        hidden: (kind == HeadKind::Mlp).then(|| vec![16]),
        training,
        ..HeadConfig::default()
    }
}

#[test]
fn grades_of_any_range_are_learned_by_every_loss() -> Result<()> {
    for (kind, loss, middle, step) in [
        (HeadKind::Ridge, None, 2.0, 1.0),
        (HeadKind::Ridge, None, -400.0, 50.0),
        (HeadKind::Mlp, Some(Loss::SquaredError), 2.0, 1.0),
        (HeadKind::Mlp, Some(Loss::SquaredError), -400.0, 50.0),
        (HeadKind::Mlp, Some(Loss::Huber), 0.0, 0.01),
        (HeadKind::Mlp, Some(Loss::Ordinal), 2.0, 1.0),
    ] {
        let samples = graded(400, middle, step);
        let head = train(&samples, "edu", &of_loss(kind, loss), 1)?;
        let record = head.card.training.clone().context("no record")?;
        let test = record.test.context("no test")?;
        // Five grades of which the embedding says all but the rounding: a step off is far.
        assert!(test.spearman > Some(0.85), "{loss:?} {middle}: {test:?}");
        let error = test.mean_absolute_error.context("no error")?;
        assert!(error < 0.45 * f64::from(step), "{loss:?} {middle}: {error}");
        assert_eq!((test.roc_auc, test.accuracy), (None, None));
        assert!(record.linear_test.is_some_and(|test| test.spearman > Some(0.8)));
        assert_eq!(record.learning_curve.len(), 3);
        let LabelCounts::Grades { num_samples, lowest, highest, .. } = record.samples["train"]
        else {
            anyhow::bail!("no grades: {:?}", record.samples);
        };
        assert_eq!(num_samples, 320);
        assert_eq!(
            (lowest, highest),
            (f64::from(middle - 2.0 * step), f64::from(middle + 2.0 * step))
        );
        let (output, sizes) = match loss {
            Some(Loss::Ordinal) => (HeadOutput::Expected, vec![12, 16, 5]),
            Some(_) => (HeadOutput::Raw, vec![12, 16, 1]),
            None => (HeadOutput::Raw, vec![12, 1]),
        };
        assert_eq!((head.card.spec.output, head.card.spec.layer_sizes.clone()), (output, sizes));
        let again = train(&reordered(&samples), "edu", &of_loss(kind, loss), 1)?;
        assert!(again.to_bytes()? == head.to_bytes()?);
    }
    Ok(())
}

/// Samples of weight 0 are as good as none, whatever their grades are.
#[test]
fn weights_say_how_much_a_sample_counts() -> Result<()> {
    for (kind, loss) in [(HeadKind::Ridge, None), (HeadKind::Mlp, Some(Loss::SquaredError))] {
        let mut samples = graded(400, 2.0, 1.0);
        samples.splits = splits(400);
        let config = of_loss(kind, loss);
        let clean = train(&samples, "edu", &config, 1)?;
        for row in (0..400).step_by(3) {
            samples.labels[row] = 4.0 - samples.labels[row];
        }
        let spearman = |head: &Head, samples: &Samples| -> Result<f64> {
            let offsets: Vec<usize> = (0..=400).collect();
            let scores = head.score(&samples.embeddings, &offsets)?;
            let (found, grades): (Vec<f32>, Vec<f32>) = (scores.into_iter().enumerate())
                .filter(|(row, _)| row % 3 != 0)
                .filter_map(|(row, score)| Some((score?.score, samples.labels[row])))
                .unzip();
            polysift::metrics::spearman(&found, &grades).context("no order")
        };
        let blind = spearman(&train(&samples, "edu", &config, 1)?, &samples)?;
        samples.weights = (0..400).map(|row| if row % 3 == 0 { 0.0 } else { 2.5 }).collect();
        let weighted = spearman(&train(&samples, "edu", &config, 1)?, &samples)?;
        let clean = spearman(&clean, &samples)?;
        assert!(
            weighted > blind + 0.05 && (weighted - clean).abs() < 0.03,
            "{blind} {weighted} {clean}"
        );
    }
    Ok(())
}

#[test]
fn grades_that_cannot_be_trained_on_are_an_error() -> Result<()> {
    let mut one = graded(20, 2.0, 1.0);
    one.labels.fill(3.0);
    let mut unweighted = graded(20, 2.0, 1.0);
    unweighted.weights = vec![0.0; 20];
    let ordinal = of_loss(HeadKind::Mlp, Some(Loss::Ordinal));
    let ridge = of_loss(HeadKind::Ridge, None);
    for (samples, config, expected) in [
        (&one, &ridge, "20 sample(s) can be used, all of one grade"),
        (&graded(9, 2.0, 1.0), &ridge, "9 sample(s) can be used; needed are at least 10"),
        (&unweighted, &ridge, "all weights of the training split are 0"),
        (&graded(50, 0.0, 1.0), &ordinal, "needs grades from 0 to 100"),
        (&graded(50, 2.0, 100.0), &ordinal, "needs grades from 0 to 100"),
    ] {
        let error = train(samples, "edu", config, 1).err().context(expected)?.to_string();
        assert!(error.contains(expected), "{error}");
    }
    Ok(())
}
