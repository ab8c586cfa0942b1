"""Tables and lists of paths."""

from __future__ import annotations

import json
from typing import Any

from cases import Case, Files, images, lone
from cases_beside import parquet

PHOTOS = images("photos/{0,1,2}.jpg")


def listing(name: str, *lines: str, ends: str = "\n") -> Files:
    """A table of the photos: `{}` in a line is the next path."""
    paths = iter(PHOTOS)
    text = "".join((line.format(next(paths)) if "{}" in line else line) + ends for line in lines)
    return {**PHOTOS, name: text}


def csv(*lines: str) -> Files:
    return listing("list.csv", *lines)


def table(name: str, *lines: str, **options: Any) -> Case:
    return Case(name, "list.csv", csv(*lines), options)


def listed(name: str, path: str, text: bytes | str, **options: Any) -> Case:
    return Case(name, path, {**PHOTOS, path: text}, options)


CASES = (
    Case(
        "a CSV with Windows' line ends", "list.csv", listing("list.csv", "path,label", "{},cat", "{},dog", ends="\r\n")
    ),
    Case("a TSV", "list.tsv", listing("list.tsv", "path\tlabel", "{}\tcat", "{}\tdog")),
    listed(
        "semicolons and a byte order mark",
        "list.csv",
        '\ufeffpath;label;note\nphotos/0.jpg;cat;"a; b"\nphotos/1.jpg;dog;c\n',
    ),
    listed("texts in latin-1", "list.csv", "path,label\nphotos/0.jpg,caf\xe9\n".encode("latin-1")),
    listed("UTF-16", "list.csv", "path,label\nphotos/0.jpg,cat\n".encode("utf-16")),
    table("labels that are numbers", "path,label", "{},0", "{},1", "{},1"),
    table("decimal commas", "path;label", "{};0,5", "{};1,25", "{};2,0"),
    *(
        Case(
            f"labels counted from 1, with {what}",
            "list.csv",
            {**csv("path,label", "{},1", "{},2", "{},1"), "names.txt": names},
            {"classes": "names.txt"},
        )
        for what, names in (
            ("names of classes", "cat\ndog\neel\n"),
            ("names that say 1", "1 cat\n2 dog\n3 eel"),
            ("names that say 0", "0 cat\n1 dog\n2 eel"),
        )
    ),
    Case(
        "labels of a JSON list counted from 1, with names",
        "list.jsonl",
        listing("list.jsonl", *(f'{{{{"path": "{{}}", "label": {n}}}}}' for n in (2, 1, 2))),
        {"classes": ("cat", "dog", "eel")},
    ),
    table("n/a among numbers", "path,n", "{},1", "{},n/a", "{},3"),
    table("an empty cell among whole numbers", "path,n", "{},1", "{},", "{},3"),
    table("NA among labels that are numbers", "path,label", "{},NA", "{},0", "{},1"),
    table("names with zeros in front", "path,id", "{},007", "{},100", "{},212"),
    table("mostly texts", "path,id", "{},7", "{},7a", "{},7b"),
    *(
        Case(
            f"a line of JSON that {what}",
            "list.jsonl",
            listing("list.jsonl", '{{"path": "{}", "n": 1}}', line, '{{"path": "{}", "n": 3}}'),
        )
        for what, line in (
            ("breaks off after its path", '{{"path": "{}", "n":'),
            ("breaks off in its path", '{{"n": 1, "path": "{}'),
            ("lacks a value", '{{"path": "{}"}}'),
            ("is a list", '["{}", 2]'),
        )
    ),
    table("labels with gaps", "path,label", "{},0", "{},", "{},1"),
    table("blanks around labels", "path,label", "{}, cat", "{},cat", "{},dog"),
    table("NaN among labels", "path,label", "{},cat", "{},NaN", "{},nan"),
    table("decimal commas, and a word", "path;label", "{};0,5", "{};cat", "{};2,0"),
    table("True and False", "path,label", "{},True", "{},False", "{},True"),
    table("an index in front, as pandas writes it", ",path,label", "0,{},cat", "1,{},dog"),
    table("a column called class", "path,class", "{},cat", "{},dog"),
    table("a column called category_id", "path,category_id", "{},4", "{},5"),
    table("paths in a column called image", "image,label", "{},cat", "{},dog"),
    table("a column called targetId", "path,targetId", "{},4", "{},5"),
    table("a column called y, of numbers", "path,y", "{},4", "{},5"),
    table("columns called x and y", "path,x,y", "{},4,1", "{},5,2"),
    table("columns called class and category", "path,category,class", "{},pet,cat", "{},pet,dog"),
    table("a column of other words", "path,caption", "{},a pug", "{},a boxer"),
    table("targets that are files", "path,target", "{},photos/1.jpg", "{},photos/0.jpg"),
    table("paths in a column called File Name", "File Name,label", "{},cat", "{},dog"),
    table("paths in a column called where", "id,where,label", "7,{},cat", "8,{},dog"),
    table("paths in two columns", "a,b,label", "{},photos/1.jpg,cat", "{},photos/0.jpg,dog"),
    table("a column of paths that is named", "where,label", "{},cat", "{},dog", path_column="where"),
    table("without names of columns", "{},0", "{},1"),
    lone("an empty table", "list.csv", ""),
    table("a row that is too long", "path,label", "{},cat", "{},dog,3"),
    listed("an image twice", "list.csv", "path,label\nphotos/0.jpg,cat\nphotos/0.jpg,dog\n"),
    table("files that are missing", "path,label", "{},cat", "photos/9.jpg,dog"),
    listed("paths from the folder where one is", "tables/list.csv", "path,label\nphotos/0.jpg,cat\nphotos/1.jpg,dog\n"),
    listed("paths below --images", "list.csv", "path,label\n0.jpg,cat\n", images="photos"),
    listed("paths with backslashes", "list.csv", "path,label\nphotos\\0.jpg,cat\n"),
    lone("URLs", "list.csv", "path,label\nhttps://example.com/0.jpg,cat\n"),
    table("a row for each box", "image_id,x1,y1,x2,y2,class", "{},1,1,5,5,cat", "{},2,2,4,4,dog"),
    table("a column for each class", "path,cat,dog", "{},1,0", "{},0,1", label_column="cat,dog:onehot"),
    listed("JSON that is a table of paths", "list.json", json.dumps({"photos/0.jpg": "cat"})),
    listed("JSON that is cut", "list.json", '[{"path": "photos/0.jpg", '),
    Case(
        "a Parquet of paths",
        "list.parquet",
        lambda root: {**PHOTOS, "list.parquet": parquet({"path": [*PHOTOS], "label": ["cat", "dog", "cat"]})},
        needs=("pyarrow",),
    ),
    Case(
        "a folder of Parquet of paths",
        "tables",
        lambda root: {
            **{f"tables/{name}": data for name, data in PHOTOS.items()},
            **{f"tables/{n}.parquet": parquet({"path": [f"photos/{n}.jpg"]}) for n in range(2)},
        },
        needs=("pyarrow",),
    ),
    Case("a plain list", "list.txt", listing("list.txt", "{}", "{}")),
    Case("a plain list with labels", "list.txt", listing("list.txt", "{} 0", "{} 1")),
    listed("the same, with a template", "list.txt", "0\n2\n", images="photos", path_column="{}.jpg"),
    lone("a text that is no list", "notes.txt", "Dear reader,\nthere are no images.\n"),
    Case("a folder of tables alone", "tables", {"tables/list.csv": "path,label\n../photos/0.jpg,cat\n", **PHOTOS}),
)
