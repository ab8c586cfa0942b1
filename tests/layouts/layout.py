"""The data of each line of the page "I have ...", which its command or line of Python packs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from archived import zipped
from cases import Files, copied, files, image, texts, write
from cases_arrays import LABELS, PIXELS, Data, hdf5, mnist
from cases_beside import BOX, VOC, coco, npy, npz, parquet
from PIL import Image


@dataclass(frozen=True)
class Layout:
    """One line of the page's tables."""

    have: str
    """Its first cell: the page has the command."""
    make: Files | Callable[[Path], Any]
    """The files; or what makes them in the empty folder in which the command then runs, or returns them. For a line of
    Python, it returns the names that the line uses."""
    needs: tuple[str, ...] = ()
    """Modules without which the layout is skipped."""

    def lay(self, folder: Path) -> Any:
        """Make it; for a line of Python, returns the names."""
        made = self.make(folder) if callable(self.make) else self.make
        if made is None or not all(isinstance(data, bytes | str) for data in made.values()):
            return made
        return write(folder, made)


# ---------------------------------------------------------------------------------------------- labels and texts

_BREEDS = ("pug", "beagle", "pug")
_PHOTOS = [f"photos/{n}.png" for n in range(3)]
_DOGS = files("train/{00a,01b,02c}.png", {"labels.csv": "id,breed\n02c,pug\n00a,beagle\n01b,pug\n"})
"""Names without the extension, in an order of their own."""
_DOWNLOADED = zipped({**_DOGS, **files("test/{f0,f1}.png"), "sample_submission.csv": "id,beagle,pug\nf0,0.3,0.7\n"})
"""As it is downloaded: also with the images of the test set, and a table that is no list of labels."""
_EXCEL = "path;label;note\r\n" + "".join(f'{path};pug;"größer; {n}"\r\n' for n, path in enumerate(_PHOTOS))
_CAPTIONS = [[f'a "photo" of thing {n}, view {k}: ünï \u2603' for k in range((n + 2) % 4)] for n in range(3)]
"""Two for the first image, then three, then none."""
_CAPTIONS_OF_COCO = {
    "images": [{"id": 1000 - n, "file_name": f"{n}.png", "height": 8, "width": 8} for n in range(3)],
    "annotations": [
        {"image_id": 1000 - n, "id": 10 * n + k, "caption": caption}
        for n in (1, 0, 2)
        for k, caption in enumerate(_CAPTIONS[n])
    ],
}
_LLAVA = [
    {"id": f"{n}", "image": f"coco/{n}.png", "conversations": [{"from": "human", "value": f"<image>\nWhat? {n} ü"}]}
    for n in range(3)
]


def _with_photos(have: str, name: str, text: bytes | str) -> Layout:
    return Layout(have, files("photos/{0,1,2}.png", {name: text}))


def _videos(files: Files, *paths: str) -> Callable[[Path], None]:
    """Videos of two frames, and other files."""

    def make(root: Path) -> None:
        from videos import encode

        for n, path in enumerate(paths):
            encode(root / path, "ffv1", 2, format="bgr0", numbers=[n, 7])
        write(root, files)

    return make


def _ucf(have: str, name: str, line: str) -> Layout:
    """UCF101's lists. line: of the list."""
    paths = [f"{name}/v_{name}_g01_c01.avi" for name in ("Archery", "Biking")]
    listed = "".join(line.format(path=path, number=number) + "\n" for number, path in enumerate(paths, 1))
    lists = {"ucfTrainTestlist/classInd.txt": "1 Archery\r\n2 Biking\r\n", f"ucfTrainTestlist/{name}": listed}
    return Layout(have, _videos(lists, *(f"UCF-101/{path}" for path in paths)), ("av",))


def _captions_in_parquet(root: Path) -> Files:
    value = {"dtype": "string", "_type": "Value"}
    images = [{"bytes": image(".png", n), "path": f"{n}.png"} for n in range(3)]
    about = {"image": {"_type": "Image"}, "caption": {"feature": value, "_type": "Sequence"}}
    return {"flickr/data/test-00000-of-00001.parquet": parquet({"image": images, "caption": _CAPTIONS}, about)}


_LABELS = (
    Layout("a folder for each class", files("photos/{cat,dog}/{0,1}.png")),
    _with_photos(
        "a folder with a `metadata.csv`, as Hugging Face's ImageFolder",
        "photos/metadata.csv",
        'file_name,text,label\n1.png,"A dog, no. 1",beagle\n0.png,"A dog, no. 0",pug\n2.png,"A dog, no. 2",pug\n',
    ),
    Layout("a folder and a table of names and classes, as of Kaggle", _DOGS),
    Layout("Kaggle's zip with `train/`, `test/` and `labels.csv` in it", {"dogs.zip": _DOWNLOADED}),
    Layout(
        "ILSVRC's `val` folder and Kaggle's `LOC_val_solution.csv`",
        files(
            "val/v_{0,1}.JPEG",
            {"LOC_val_solution.csv": "ImageId,PredictionString\nv_1,n02 1 2 30 40 n02 3 4 5 6 \nv_0,n01 1 2 3 4 \n"},
        ),
    ),
    _with_photos("a table of paths from Excel, with semicolons", "table.csv", _EXCEL.encode("utf-8-sig")),
    Layout(
        "a Parquet of paths",
        lambda root: files(
            "photos/{0,1,2}.png",
            {"table.parquet": parquet({"path": _PHOTOS, "label": [*_BREEDS], "age": [4, 5, 6]})},
        ),
        ("pyarrow",),
    ),
    _with_photos(
        "a table of paths whose classes are in another column than `label`",
        "animals.csv",
        "filename,age,species\nphotos/0.png,4,pug\nphotos/1.png,5,beagle\nphotos/2.png,6,pug\n",
    ),
    Layout(
        "a table with a column of 0 and 1 for each class, as of ISIC",
        files("images/I_{0,1}.png", {"truth.csv": "image,MEL,NV,BCC\nI_0,0.0,1.0,0.0\nI_1,0.0,0.0,0.0\n"}),
    ),
    Layout("a list of names without the extension", files("images/a_{0,1,2}.png", {"test.txt": "a_2\na_0\n"})),
    Layout("videos in a folder for each class", _videos({}, "videos/rain/one.avi", "videos/sun/two.avi"), ("av",)),
    Layout(
        "videos and a table of their labels",
        _videos({"labels.csv": "video,label\none.avi,rain\ntwo.avi,sun\n"}, "videos/one.avi", "videos/two.avi"),
        ("av",),
    ),
    _ucf("UCF101's `trainlist01.txt`", "trainlist01.txt", "{path} {number}"),
    _ucf("UCF101's `testlist01.txt`, without labels", "testlist01.txt", "{path}"),
    Layout(
        "Flickr30k's `results.csv`, a row for each caption",
        files(
            "flickr/{0,1}.png",
            {"results.csv": "image_name| comment_number| comment\n0.png| 0| A , of 0 .\n0.png| 1| B\n1.png| 0| C\n"},
        ),
    ),
    Layout(
        "COCO's captions",
        files("coco/val2017/{0,1,2}.png", {"coco/annotations/captions_val2017.json": json.dumps(_CAPTIONS_OF_COCO)}),
    ),
    _with_photos(
        "JSON Lines with lists of captions",
        "captions.jsonl",
        "".join(json.dumps({"path": _PHOTOS[n], "captions": _CAPTIONS[n]}) + "\n" for n in range(3)),
    ),
    Layout(
        "LLaVA's JSON of conversations",
        files("llava/coco/{0,1,2}.png", {"llava/llava_instruct.json": json.dumps(_LLAVA)}),
    ),
    *(
        Layout(f"what img2dataset writes as `{form}`", copied(f"img2dataset/{form}", "laion"), ("pyarrow",))
        for form in ("files", "webdataset", "parquet")
    ),
    Layout("Hugging Face's Parquet with lists of captions", _captions_in_parquet, ("pyarrow",)),
)

# ---------------------------------------------------------------------------------------------- objects

_CLASSES = ["hen", "ant"]
_OBJECTS: list[Any] = [
    {"id": [7, 8], "area": [4.5, 2.0], "bbox": [[5, 4, 3, 4], [6, 2, 2, 2]], "category": [0, 1]},
    {"id": [], "area": [], "bbox": [], "category": []},
]
_METADATA = "".join(json.dumps({"file_name": f"{n}.png", "objects": one}) + "\n" for n, one in enumerate(_OBJECTS))
_CROWD = {"id": 2, "image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 2], "area": 4, "iscrowd": 1}
_OPEN_IMAGES = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside\n"
    "1,xclick,/m/02,1,0.25,0.5,0,1,0,0,1,0,-1\n0,xclick,/m/01,1,0,0.5,0.125,1,0,1,0,0,-1\n"
)


def _objects_in_parquet(root: Path) -> Files:
    category = {"feature": {"names": _CLASSES, "_type": "ClassLabel"}, "_type": "List"}
    images = [{"bytes": image(".png", n), "path": f"{n}.png"} for n in range(2)]
    about = {"image": {"_type": "Image"}, "objects": {"category": category}}
    return {"pets/data/train-00000-of-00001.parquet": parquet({"image": images, "objects": _OBJECTS}, about)}


_OF_OBJECTS = (
    Layout(
        "COCO's instances",
        files("val2017/{0,1}.png", {"annotations/instances_val2017.json": coco("0.png", "1.png", more=[_CROWD])}),
    ),
    Layout(
        "YOLO's folders with a data.yaml",
        files(
            "pets/images/{train,val}/{0,1}.png",
            texts(BOX, "pets/labels/{train,val}/0.txt"),
            {"pets/data.yaml": "train: images/train\nval: images/val\nnames: [hen, ant]\n"},
        ),
        ("yaml",),
    ),
    Layout(
        "Pascal VOC",
        files("VOCdevkit/VOC2012/JPEGImages/{0,1}.jpg", texts(VOC, "VOCdevkit/VOC2012/Annotations/{0,1}.xml")),
    ),
    Layout("labelme's files next to the images", copied("labelme/photos", "photos")),
    Layout("an export of CVAT for images", copied("cvat/export", "task")),
    Layout(
        "Open Images' boxes, `ID.jpg` in photos/",
        files(
            "photos/{0,1,2}.jpg",
            {"class-descriptions-boxable.csv": "/m/01,hen\n/m/02,ant\n", "train-annotations-bbox.csv": _OPEN_IMAGES},
        ),
    ),
    _with_photos(
        "a csv with a row for each box",
        "photos/boxes.csv",
        "image_id,x1,y1,x2,y2,class\n0.png,1,1,4,5,hen\n0.png,0,2,2,4,ant\n1.png,,,,,\n2.png,2,3,8,8,hen\n",
    ),
    Layout("Parquet files with `objects`", _objects_in_parquet, ("pyarrow",)),
    Layout("a metadata.jsonl with `objects`", files("photos/{0,1}.png", {"photos/metadata.jsonl": _METADATA})),
)

# ---------------------------------------------------------------------------------------------- arrays, other loaders

_SPLITS = ("train", "val", "test")


def _med(labels: Any) -> bytes:
    """MedMNIST's file."""
    images = {f"{split}_images": PIXELS[..., 0] for split in _SPLITS}
    return npz(**images, **{f"{split}_labels": labels for split in _SPLITS})


def _pcam(root: Path) -> Files:
    stem = "pcam/camelyonpatch_level_2_split"
    for split in ("train", "valid", "test"):
        hdf5(f"{stem}_{split}_x.h5", x=PIXELS)(root)
        hdf5(f"{stem}_{split}_y.h5", y=LABELS.reshape(-1, 1, 1, 1))(root)
    return texts("coord_x,coord_y\n", f"{stem}_{{train,valid,test}}_meta.csv")


def _lmdb(root: Path) -> None:
    with lmdb.open(str(root / "captions.lmdb"), map_size=1 << 20) as database, database.begin(write=True) as put:
        for n in range(3):
            for end, value in (("jpg", image(".jpg", n)), ("txt", f"picture {n}, \u00e9".encode()), ("cls", b"1")):
                put.put(f"{n}.{end}".encode(), value)


_TRAIN = {"shapes/x_train.npy": npy(PIXELS), "shapes/y_train.npy": npy(LABELS)}
_ARRAYS = (
    Layout("torchvision's `FashionMNIST/raw`, or MNIST's", mnist("FashionMNIST/raw")),
    Layout(
        "Keras' `mnist.npz`: `x_train`, `y_train`, `x_test`, `y_test`",
        {"mnist.npz": npz(x_train=PIXELS, y_train=LABELS, x_test=PIXELS, y_test=LABELS)},
    ),
    Layout(
        "MedMNIST's `.npz`: `train_images`, `train_labels`, `val_images`, ...",
        {"bloodmnist.npz": _med(LABELS.reshape(-1, 1))},
    ),
    Layout(
        "the same, with several findings for each image: labels (N, 14)",
        {"chestmnist.npz": _med((np.arange(42).reshape(3, 14) % 3 == 0).astype(np.uint8))},
    ),
    Layout("images in `..._train_x.h5`, labels in `..._train_y.h5` (PCam)", _pcam),
    Layout(
        "HDF5 with images, and labels or other values of as many rows", hdf5("Galaxy10.h5", images=PIXELS, ans=LABELS)
    ),
    Layout(
        "HDF5 with splits: `train/x`, `train/y`, `test/x`, or `x_train`",
        hdf5("digits.h5", train__x=PIXELS, train__y=LABELS, test__x=PIXELS, test__y=LABELS),
    ),
    Layout(
        "HDF5 with a group for each class, and a data set for each image",
        hdf5("pets.h5", cat__0=PIXELS[0], dog__0=PIXELS[1], dog__1=PIXELS[2]),
    ),
    Layout(
        "HDF5 with image files as bytes: of one length (`S`), opaque, or variable",
        hdf5("photos.h5", images=np.array([image(".png", n) for n in range(3)]), labels=LABELS),
    ),
    Layout("an LMDB of `name.jpg`, `name.txt` and `name.cls`", _lmdb),
    Layout("`x_train.npy` and `y_train.npy`, or `images.npy` and `labels.npy`", _TRAIN),
    Layout(
        "the same, with `x_test.npy` and `y_test.npy`",
        {**_TRAIN, "shapes/x_test.npy": npy(PIXELS[:2]), "shapes/y_test.npy": npy(LABELS[:2])},
    ),
    Layout("MDS of MosaicML Streaming: shards and an `index.json`", copied("mds/splits/train", "set")),
    Layout("MDS in folders of splits", copied("mds/splits", "set")),
    Layout("what `litdata.optimize` writes: chunks and an `index.json`", copied("litdata/dicts", "set")),
    Layout("the same, whose samples are tuples of an image and a label", copied("litdata/pairs", "pairs")),
    Layout("ImageNet as TFRecord files", copied("tfrecord/imagenet", "imagenet"), ("google_crc32c",)),
    Layout("TFRecord files of TensorFlow's object detection", copied("tfrecord/detection", "coco"), ("google_crc32c",)),
    Layout("a folder of TensorFlow Datasets", copied("tfrecord/pets", "pets"), ("google_crc32c",)),
    Layout("a LeRobot dataset, v3: many episodes in each video", copied("lerobot/v30/h264", "robot"), ("av",)),
    Layout("a LeRobot dataset, v2: a video for each episode", copied("lerobot/v21/h264", "robot"), ("av",)),
)

# ---------------------------------------------------------------------------------------------- Python objects


def _paths(root: Path) -> list[str]:
    write(root, files("{0,1,2}.png"))
    return [str(root / f"{n}.png") for n in range(3)]


def _frame(module: str, root: Path) -> Mapping[str, Any]:
    return {"frame": __import__(module).DataFrame({"path": _paths(root), "label": [*_BREEDS]})}


def _hugging_face(root: Path) -> Mapping[str, Any]:
    import datasets

    made = datasets.Dataset.from_dict({"img": _paths(root), "breed": [*_BREEDS]})
    return {"dataset": made.cast_column("img", datasets.Image()).class_encode_column("breed")}


def _hugging_face_objects(root: Path) -> Mapping[str, Any]:
    import datasets

    made = datasets.Dataset.from_dict({"image": _paths(root)[:2], "objects": _OBJECTS})
    return {"dataset": made.cast_column("image", datasets.Image())}


def _dataset(have: str, dataset: Data) -> Layout:
    return Layout(have, lambda root: {"dataset": dataset})


def _detection(i: int) -> tuple[Image.Image, dict[str, Any]]:
    """As in torchvision's tutorial on detection."""
    boxes = np.array([[n, n + 1, n + 4, n + 5] for n in range(i)], np.float32).reshape(-1, 4)
    labels = np.arange(1, i + 1)
    return Image.fromarray(PIXELS[i]), {"boxes": boxes, "labels": labels, "area": labels * 99.0, "image_id": i}


class _CocoDetection(Data):
    """As torchvision's."""

    coco = type("coco", (), {"cats": {9: {"id": 9, "name": "cat"}, 4: {"id": 4, "name": "dog"}}})


def _annotated(i: int) -> tuple[Image.Image, list[dict[str, Any]]]:
    things = [{"bbox": [n, 2, 3, 4], "category_id": (9, 4)[n], "iscrowd": n} for n in range(i)]
    return Image.fromarray(PIXELS[i]), things


_PYTHON = (
    Layout("a pandas DataFrame of paths and labels", partial(_frame, "pandas"), ("pandas",)),
    Layout("a polars DataFrame of paths and labels", partial(_frame, "polars"), ("polars",)),
    Layout("a Hugging Face `Dataset`", _hugging_face, ("datasets",)),
    Layout("a Hugging Face `Dataset` with `objects`", _hugging_face_objects, ("datasets",)),
    _dataset("a dataset whose labels are texts", Data(3, lambda i: (Image.fromarray(PIXELS[i]), _BREEDS[i]))),
    _dataset("a detection dataset: (image, dict of `boxes` and `labels`)", Data(3, _detection)),
    _dataset("torchvision's `CocoDetection`: (image, list of annotations)", _CocoDetection(3, _annotated)),
    _dataset(
        "a dataset of arrays of different sizes, as by `cv2.imread`", Data(3, lambda i: (PIXELS[i][: 8 - i], i % 2))
    ),
    Layout(
        "a generator, or a stream without a length",
        lambda root: {"stream": ({"image": PIXELS[n], "label": _BREEDS[n]} for n in range(3))},
    ),
)

LAYOUTS = (*_LABELS, *_OF_OBJECTS, *_ARRAYS, *_PYTHON)
