import numpy as np

from overnight_consumer.methods.shapley import train
from overnight_consumer.methods.shapley.classifier import load_classifier, shipped_classifier


def test_the_digits_are_those_that_the_readme_describes(digits, labels):
    assert digits.shape == (1797, 64)
    assert (digits.min(), digits.max()) == (0, 16)
    assert labels.shape == (1797,)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_shipped_weights_tell_held_out_digits_with_the_stated_accuracy(digits, labels):
    seen, held_out = train.split(digits)
    _, held_out_labels = train.split(labels)

    assert (len(seen), len(held_out)) == (1437, 360)
    found = train.accuracy(shipped_classifier(), held_out.astype(float), held_out_labels)
    assert round(found, 4) == 0.9694


def test_the_shipped_mean_digit_is_the_mean_of_the_training_points_only(digits):
    seen, _ = train.split(digits)

    np.testing.assert_allclose(shipped_classifier().mean_digit, seen.mean(axis=0), rtol=1e-12)


def test_training_again_gives_a_classifier_as_good_as_the_shipped_one(
    digits_folder, tmp_path, capsys, digits, labels
):
    train.main(["--data", str(digits_folder), "--output", str(tmp_path / "weights.npz")])

    again = load_classifier(tmp_path / "weights.npz")
    # Another BLAS rounds otherwise, and 5,400 steps magnify that: the quality is promised, not the bits.
    held_out, held_out_labels = train.split(digits)[1], train.split(labels)[1]
    assert train.accuracy(again, held_out.astype(float), held_out_labels) >= 0.95
    assert "on 360 held-out points" in capsys.readouterr().out


def test_training_twice_on_one_machine_gives_the_same_bits(digits, labels):
    first = train.train(digits[:64].astype(float), labels[:64])
    second = train.train(digits[:64].astype(float), labels[:64])

    np.testing.assert_array_equal(first.hidden_weights, second.hidden_weights)
    np.testing.assert_array_equal(first.output_biases, second.output_biases)


def test_probabilities_are_positive_and_add_up_to_one_even_for_wild_pixels():
    wild = np.array([np.full(64, 1e6), np.full(64, -1e6), np.zeros(64)])

    probabilities = shipped_classifier().probabilities(wild)

    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
