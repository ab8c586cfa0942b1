"""Tables and lists of paths."""

from __future__ import annotations

import json

from cases import Case, Files, images
from cases_beside import parquet

PHOTOS = images("photos/{0,1,2}.jpg")


def listing(name: str, *lines: str, ends: str = "\n") -> Files:
    """A table of the photos: `{}` in a line is the next path."""
    paths = iter(PHOTOS)
    text = "".join((line.format(next(paths)) if "{}" in line else line) + ends for line in lines)
    return {**PHOTOS, name: text}


_BLANKS = "".join(
    json.dumps({"path": f"photos/{i}.jpg", "label": label, "note": " kept "}) + "\n"
    for i, label in enumerate((" cat", "cat", "nan"))
)


def csv(*lines: str) -> Files:
    return listing("list.csv", *lines)


CASES = (
    Case("a CSV of paths and labels", "list.csv", csv("path,label", "{},cat", "{},dog", "{},cat")),
    Case(
        "a CSV with Windows' line ends", "list.csv", listing("list.csv", "path,label", "{},cat", "{},dog", ends="\r\n")
    ),
    Case("a CSV with capitals in its suffix", "LIST.CSV", listing("LIST.CSV", "path,label", "{},cat", "{},dog")),
    Case("a TSV", "list.tsv", listing("list.tsv", "path\tlabel", "{}\tcat", "{}\tdog")),
    Case(
        "semicolons and a byte order mark",
        "list.csv",
        {**PHOTOS, "list.csv": '\ufeffpath;label;note\nphotos/0.jpg;cat;"a; b"\nphotos/1.jpg;dog;c\n'},
    ),
    Case(
        "texts in latin-1", "list.csv", {**PHOTOS, "list.csv": "path,label\nphotos/0.jpg,caf\xe9\n".encode("latin-1")}
    ),
    Case("UTF-16", "list.csv", {**PHOTOS, "list.csv": "path,label\nphotos/0.jpg,cat\n".encode("utf-16")}),
    Case("labels that are numbers", "list.csv", csv("path,label", "{},0", "{},1", "{},1")),
    Case("labels that are fractions", "list.csv", csv("path,label", "{},0.5", "{},1.25", "{},2.0")),
    Case("decimal commas", "list.csv", csv("path;label", "{};0,5", "{};1,25", "{};2,0")),
    Case(
        "labels counted from 1, with names of classes",
        "list.csv",
        {**csv("path,label", "{},1", "{},2", "{},1"), "names.txt": "cat\ndog\neel\n"},
        {"classes": "names.txt"},
    ),
    *(
        Case(
            f"labels counted from 1, with names that say {words.split()[0]}",
            "list.csv",
            {**csv("path,label", "{},1", "{},2", "{},1"), "names.txt": words.replace(",", "\n")},
            {"classes": "names.txt"},
        )
        for words in ("1 cat,2 dog,3 eel", "0 cat,1 dog,2 eel")
    ),
    Case(
        "labels of a JSON list counted from 1, with names",
        "list.jsonl",
        listing("list.jsonl", *(f'{{{{"path": "{{}}", "label": {n}}}}}' for n in (2, 1, 2))),
        {"classes": ("cat", "dog", "eel")},
    ),
    Case("classes that differ in case", "list.csv", csv("path,label", "{},Cat", "{},cat", "{},dog")),
    Case("n/a among numbers", "list.csv", csv("path,n", "{},1", "{},n/a", "{},3")),
    Case("a mark before numbers", "list.csv", csv("path,age", "{},-", "{},40", "{},41.5")),
    Case("an empty cell among whole numbers", "list.csv", csv("path,n", "{},1", "{},", "{},3")),
    Case("NA among labels that are numbers", "list.csv", csv("path,label", "{},NA", "{},0", "{},1")),
    Case("names with zeros in front", "list.csv", csv("path,id", "{},007", "{},100", "{},212")),
    Case("mostly texts", "list.csv", csv("path,id", "{},7", "{},7a", "{},7b")),
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
    Case("labels with gaps", "list.csv", csv("path,label", "{},0", "{},", "{},1")),
    Case("blanks around labels", "list.csv", csv("path,label", "{}, cat", "{},cat", "{},dog")),
    Case("NaN among labels", "list.csv", csv("path,label", "{},cat", "{},NaN", "{},nan")),
    Case("decimal commas, and a number without", "list.csv", csv("path;label", "{};1", "{};-0,25", "{};")),
    Case("decimal commas, and a word", "list.csv", csv("path;label", "{};0,5", "{};cat", "{};2,0")),
    Case("decimal commas in a field", "list.csv", csv("path;score;note", "{};0,5;1,5 m", "{};1,25;x", "{};2;y")),
    Case("commas between tabs", "list.tsv", listing("list.tsv", "path\tnote", "{}\t1,250", "{}\tx")),
    Case("NaN among numbers", "list.csv", csv("path,label", "{},NaN", "{},1", "{}, 2")),
    Case("blanks around names in JSON lines", "list.jsonl", {**PHOTOS, "list.jsonl": _BLANKS}),
    Case("True and False", "list.csv", csv("path,label", "{},True", "{},False", "{},True")),
    Case("an index in front, as pandas writes it", "list.csv", csv(",path,label", "0,{},cat", "1,{},dog")),
    Case("a column called class", "list.csv", csv("path,class", "{},cat", "{},dog")),
    Case("a column called Label", "list.csv", csv("path,Label", "{},cat", "{},dog")),
    Case("a column called category_id", "list.csv", csv("path,category_id", "{},4", "{},5")),
    Case("a column called target", "list.csv", csv("path,target", "{},4", "{},5")),
    Case("paths in a column called image", "list.csv", csv("image,label", "{},cat", "{},dog")),
    Case("paths in a column called Path", "list.csv", csv("Path,label", "{},cat", "{},dog")),
    Case("a column called CATEGORY", "list.csv", csv("path,CATEGORY", "{},cat", "{},dog")),
    Case("a column called class_name", "list.csv", csv("path,class_name", "{},cat", "{},dog")),
    Case("a column called targetId", "list.csv", csv("path,targetId", "{},4", "{},5")),
    Case("a column called y, of numbers", "list.csv", csv("path,y", "{},4", "{},5")),
    Case("columns called x and y", "list.csv", csv("path,x,y", "{},4,1", "{},5,2")),
    Case("columns called class and category", "list.csv", csv("path,category,class", "{},pet,cat", "{},pet,dog")),
    Case(
        "a column of few words",
        "list.csv",
        {
            **images("{0,1,2,3,4}.jpg"),
            "list.csv": "path,breed\n0.jpg,pug\n1.jpg,pug\n2.jpg,pug\n3.jpg,pug\n4.jpg,boxer\n",
        },
    ),
    Case("a column of other words", "list.csv", csv("path,caption", "{},a pug", "{},a boxer")),
    Case("targets that are files", "list.csv", csv("path,target", "{},photos/1.jpg", "{},photos/0.jpg")),
    Case("paths in a column called photo", "list.csv", csv("photo,label", "{},cat", "{},dog")),
    Case("paths in a column called File Name", "list.csv", csv("File Name,label", "{},cat", "{},dog")),
    Case("paths in a column called where", "list.csv", csv("id,where,label", "7,{},cat", "8,{},dog")),
    Case(
        "paths of images and of other files",
        "list.csv",
        csv("img_path,other,label", "{},photos/1.jpg,cat", "{},photos/0.jpg,dog"),
    ),
    Case("paths in two columns", "list.csv", csv("a,b,label", "{},photos/1.jpg,cat", "{},photos/0.jpg,dog")),
    Case("paths in a column called file_name", "list.csv", csv("file_name,label", "{},cat", "{},dog")),
    Case(
        "a column of paths that is named", "list.csv", csv("where,label", "{},cat", "{},dog"), {"path_column": "where"}
    ),
    Case(
        "another column as the label",
        "list.csv",
        csv("path,age,species", "{},3,cat", "{},4,dog"),
        {"label_column": "species"},
    ),
    Case("numbers, texts and lists", "list.csv", csv("path,age,weight,note", "{},3,0.5,a", "{},4,1.5,b")),
    Case("without names of columns", "list.csv", csv("{},0", "{},1")),
    Case("names of columns alone", "list.csv", csv("path,label")),
    Case("an empty table", "list.csv", {"list.csv": ""}),
    Case("a row that is too long", "list.csv", csv("path,label", "{},cat", "{},dog,3")),
    Case("an image twice", "list.csv", {**PHOTOS, "list.csv": "path,label\nphotos/0.jpg,cat\nphotos/0.jpg,dog\n"}),
    Case("files that are missing", "list.csv", csv("path,label", "{},cat", "photos/9.jpg,dog")),
    Case("all files missing", "list.csv", {"list.csv": "path,label\nphotos/8.jpg,cat\nphotos/9.jpg,dog\n"}),
    Case(
        "absolute paths",
        "list.csv",
        lambda root: {**PHOTOS, "list.csv": f"path,label\n{root}/photos/0.jpg,cat\n"},
        is_saved=False,
    ),
    Case(
        "paths from the folder where one is",
        "tables/list.csv",
        {**PHOTOS, "tables/list.csv": "path,label\nphotos/0.jpg,cat\nphotos/1.jpg,dog\n"},
    ),
    Case("paths below --images", "list.csv", {**PHOTOS, "list.csv": "path,label\n0.jpg,cat\n"}, {"images": "photos"}),
    Case("paths with backslashes", "list.csv", {**PHOTOS, "list.csv": "path,label\nphotos\\0.jpg,cat\n"}),
    Case("URLs", "list.csv", {"list.csv": "path,label\nhttps://example.com/0.jpg,cat\n"}),
    Case("a row for each box", "list.csv", csv("image_id,x1,y1,x2,y2,class", "{},1,1,5,5,cat", "{},2,2,4,4,dog")),
    Case(
        "a column for each class",
        "list.csv",
        csv("path,cat,dog", "{},1,0", "{},0,1"),
        {"label_column": "cat,dog:onehot"},
    ),
    Case(
        "JSON Lines",
        "list.jsonl",
        {**PHOTOS, "list.jsonl": '{"path": "photos/0.jpg", "tags": ["a"]}\n{"path": "photos/1.jpg", "tags": []}\n'},
    ),
    Case(
        "a list in JSON", "list.json", {**PHOTOS, "list.json": json.dumps([{"path": "photos/0.jpg", "label": "cat"}])}
    ),
    Case("JSON that is a table of paths", "list.json", {**PHOTOS, "list.json": json.dumps({"photos/0.jpg": "cat"})}),
    Case("JSON that is cut", "list.json", {**PHOTOS, "list.json": '[{"path": "photos/0.jpg", '}),
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
    Case("a plain list of names without suffixes", "list.txt", {**PHOTOS, "list.txt": "0\n2\n"}, {"images": "photos"}),
    Case(
        "the same, with a template",
        "list.txt",
        {**PHOTOS, "list.txt": "0\n2\n"},
        {"images": "photos", "path_column": "{}.jpg"},
    ),
    Case("a text that is no list", "notes.txt", {"notes.txt": "Dear reader,\nthere are no images.\n"}),
    Case("a folder of tables alone", "tables", {"tables/list.csv": "path,label\n../photos/0.jpg,cat\n", **PHOTOS}),
)
