"""Pieces of a self-contained HTML page: headings, tables, tiles, figures. Whatever is text is escaped here."""

from collections.abc import Container, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple

from recall_service.replay.report.plots import Plot
from recall_service.replay.report.wording import shortened

_WORD = ' class="word"'


class Tile(NamedTuple):
    """One figure that matters, and what it is."""

    name: str
    value: str
    remark: str = ""


def document(title: str, body: Iterable[str]) -> str:
    """The page. Its policy forbids it to fetch or run anything, so it can only be what is written in it."""
    style = (files("recall_service.replay.report") / "page.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{style}</style>",
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            "</body>",
            "</html>\n",
        ]
    )


def section(heading: str, *parts: str) -> str:
    """A part of the page under its heading; nothing at all when every part is empty."""
    held = [part for part in parts if part]
    return "\n".join([f"<section>\n<h2>{escape(heading)}</h2>", *held, "</section>"]) if held else ""


def heading(title: str, subtitle: str) -> str:
    """What the page is called, and what it is of."""
    return f"<header><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></header>"


def gate(words: str, sentences: Iterable[tuple[str, bool]], *, passes: bool) -> str:
    """A verdict in words and colour, and the sentences it follows from, each with whether it passes."""
    items = "".join(
        f'<li class="{_class(passed)}"><b aria-hidden="true">{"✓" if passed else "✗"}</b>{escape(sentence)}</li>'
        for sentence, passed in sentences
    )
    listed = f"<ul>{items}</ul>" if items else ""
    return f'<div class="gate {_class(passes)}" role="status"><h2>{escape(words)}</h2>{listed}</div>'


def paragraph(text: str) -> str:
    """A paragraph."""
    return f"<p>{escape(text)}</p>"


def bullets(sentences: Iterable[str]) -> str:
    """A list of sentences."""
    return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>"


def tiles(figures: Iterable[Tile]) -> str:
    """The figures that matter, side by side."""
    return (
        '<dl class="tiles">'
        + "".join(
            f"<div><dt>{escape(tile.name)}</dt><dd>{escape(tile.value)}"
            + (f"<small>{escape(tile.remark)}</small>" if tile.remark else "")
            + "</dd></div>"
            for tile in figures
        )
        + "</dl>"
    )


def facts(pairs: Mapping[str, str]) -> str:
    """Names and their values."""
    return (
        '<dl class="facts">'
        + "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs.items())
        + "</dl>"
    )


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]], *, words: Container[int] = (0,)) -> str:
    """A table whose columns `words`, counted from 0, hold words, and the others numbers; empty without a row."""
    body = [
        "".join(_cell(text, is_first=place == 0, is_word=place in words) for place, text in enumerate(row))
        for row in rows
    ]
    if not body:
        return ""
    head = "".join(
        f'<th scope="col"{_WORD if place in words else ""}>{escape(text)}</th>' for place, text in enumerate(headings)
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in body)}</tbody></table></div>"
    )


def figures(plots: Iterable[Plot | None], lead: str = "") -> str:
    """Plots in a grid, each with its title, legend and remark; before them something else. Empty without any."""
    drawn = [f'<div class="lead">{lead}</div>'] if lead else []
    drawn += [_figure(plot) for plot in plots if plot is not None]
    return f'<div class="figures">{"".join(drawn)}</div>' if drawn else ""


def _figure(plot: Plot) -> str:
    keys = "".join(
        f"<li><svg viewBox='0 0 26 10' aria-hidden='true'><polyline class='{escape(style)}' points='1,5 25,5'/></svg>"
        f"{escape(shortened(label, 24))}</li>"
        for style, label in plot.legend.items()
    )
    legend = f"<ul class='legend'>{keys}</ul>" if len(plot.legend) > 1 else ""
    return (
        f"<figure><figcaption><h3>{escape(plot.title)}</h3>{legend}<p>{escape(plot.remark)}</p></figcaption>"
        f"{plot.svg}</figure>"
    )


def _cell(text: str, *, is_first: bool, is_word: bool) -> str:
    """A long name is shortened, and whole for who points at it."""
    short = shortened(text, 60)
    title = f' title="{escape(text)}"' if short != text else ""
    word = _WORD if is_word else ""
    return (
        f'<th scope="row"{word}{title}>{escape(short)}</th>' if is_first else f"<td{word}{title}>{escape(short)}</td>"
    )


def _class(passes: bool) -> str:
    return "passes" if passes else "fails"
