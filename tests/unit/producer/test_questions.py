from pathlib import Path

import pytest

from overnight_producer.menu import run_menu
from overnight_producer.options import Place
from overnight_producer.questions import MenuChoice, MenuLeft, ask_what_to_run, whole_number
from overnight_producer.reports.status_report import JobStanding
from support.job_files import spec_of
from support.standings import progress_of


class Person:
    """Answers in order; a person who has no answer left hangs up."""

    def __init__(self, *answers):
        self.answers, self.prompts, self.told = list(answers), [], []

    def ask(self, prompt):
        self.prompts.append(prompt)
        if not self.answers:
            raise EOFError
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def choose(self, unfinished=None, **checks):
        return ask_what_to_run(self.ask, self.told.append, unfinished, **checks)


def unfinished_job():
    return JobStanding(Path("x"), spec_of(1797, id="aaaaaaaaaaaa"), progress_of(812), None)


def test_a_job_is_described_by_five_answers():
    person = Person("1", "lib:slow", "digits.npy", "100", "7", "3")
    assert person.choose() == MenuChoice(method="lib:slow", data="digits.npy", start=100, batch=7, slots=3)


def test_empty_answers_take_what_is_proposed():
    person = Person("1", "lib:slow", "digits.npy", "", "", "auto")
    assert person.choose() == MenuChoice(method="lib:slow", data="digits.npy")


def test_a_command_is_told_from_a_method():
    choice = Person("1", "!", "! python job.py", "range:9", "", "", "").choose()
    assert (choice.method, choice.command) == (None, "python job.py")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("two", "'two' is no whole number"),
        ("1.5", "'1.5' is no whole number"),
        ("1e3", "'1e3' is no whole number"),
        ("-1", "-1 is too small: type 0 or more"),
    ],
)
def test_a_wrong_start_index_is_asked_for_again_with_the_reason(wrong, reason):
    person = Person("1", "lib:slow", "range:9", wrong, "5", "", "")
    assert person.choose().start == 5
    assert any(line.startswith(reason) for line in person.told)
    assert person.prompts.count("Start index [0]: ") == 2


@pytest.mark.parametrize("wrong", ["0", "-3", "many", "1_000", "٣"])
def test_a_wrong_batch_size_or_number_of_workers_is_asked_for_again(wrong):
    person = Person("1", "lib:slow", "range:9", "", wrong, wrong, "7", wrong, "2")
    choice = person.choose()
    assert (choice.batch, choice.slots) == (7, 2)
    assert sum("or auto" in line for line in person.told) == 3


def test_a_start_index_beyond_the_end_is_asked_for_again():
    person = Person("1", "lib:slow", "range:9", "9", "12", "8", "", "")
    choice = person.choose(
        check_start=lambda data, start: None if start < 9 else f"{data} ends before {start}"
    )
    assert choice.start == 8
    assert person.told[-2:] == ["range:9 ends before 9", "range:9 ends before 12"]


def test_a_method_or_data_set_that_cannot_be_used_is_asked_for_again():
    person = Person("1", "lib:slwo", "lib:slow", "", "nowhere.npy", "range:9", "", "", "")
    choice = person.choose(
        check_method=lambda name: "no such function" if name == "lib:slwo" else None,
        check_data=lambda uri: "no such file" if uri == "nowhere.npy" else None,
    )
    assert (choice.method, choice.data) == ("lib:slow", "range:9")
    assert person.told[-3:] == ["no such function", "A data set is needed; Ctrl-C leaves.", "no such file"]


def test_an_unfinished_job_can_be_resumed():
    person = Person("2")
    assert person.choose(unfinished_job()) == MenuChoice(resume="aaaaaaaaaaaa")
    assert "  2  resume lib:slow over range:1797, 45 % done (job aaaaaaaaaaaa)" in person.told


def test_without_an_unfinished_job_two_means_exit():
    assert Person("2").choose() is None
    assert Person("3").choose(unfinished_job()) is None
    assert Person("exit").choose() is None


def test_an_unknown_choice_is_asked_for_again():
    person = Person("4", "", "q")
    assert person.choose() is None
    assert person.told[-2:] == [
        "'4' is none of the choices: type a number from 1 to 2.",
        "Nothing is none of the choices: type a number from 1 to 2.",
    ]


@pytest.mark.parametrize("leaving", [EOFError(), KeyboardInterrupt()])
@pytest.mark.parametrize("answers", [(), ("1",), ("1", "lib:slow", "range:9", "3", "7")])
def test_leaving_at_any_question_is_no_error(answers, leaving):
    with pytest.raises(MenuLeft):
        Person(*answers, leaving).choose()


def test_leaving_the_menu_is_status_130_and_exit_is_0(tmp_path):
    person = Person()
    assert run_menu(Place(home=tmp_path), person.ask, person.told.append) == 130
    person = Person("exit")
    assert run_menu(Place(home=tmp_path), person.ask, person.told.append) == 0


def test_the_menu_looks_at_the_data_set_as_it_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_lib.py").write_text("def slow(batch):\n    return batch\n")
    person = Person("1", "my_lib:slwo", "my_lib:slow", "nowhere.npy", "range:9", "9", "0")
    assert run_menu(Place(home=tmp_path / "home"), person.ask, person.told.append) == 130
    told = "\n".join(person.told)
    assert "Method my_lib:slwo cannot be used" in told
    assert "nowhere.npy" in told
    assert "Start index 9 lies beyond the last point: type a number from 0 to 8." in told
    assert person.prompts[-1].startswith("Batch size")


def test_only_plain_digits_are_a_number():
    assert [whole_number(text) for text in ("7", "+7", "-7", "007")] == [7, 7, -7, 7]
    assert [whole_number(text) for text in ("", "-", "--7", "7.0", "7 8", "٣", "9" * 19)] == [None] * 7
