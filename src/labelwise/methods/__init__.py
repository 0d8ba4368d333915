"""The methods: one file or folder each. A class is imported on first use."""

from typing import TYPE_CHECKING

from labelwise.support.plugins import lazy_names

if TYPE_CHECKING:
    from labelwise.methods.clarel.method import Clarel as Clarel
    from labelwise.methods.discriminant.method import Discriminant as Discriminant
    from labelwise.methods.eszsl import Eszsl as Eszsl
    from labelwise.methods.indicator.method import Indicator as Indicator
    from labelwise.methods.izf.method import Izf as Izf
    from labelwise.methods.multilabel import Multilabel as Multilabel
    from labelwise.methods.prototype.method import Prototype as Prototype
    from labelwise.methods.registry import METHODS as METHODS
    from labelwise.methods.registry import method_class as method_class
    from labelwise.methods.shared.image_method import ImageMethod as ImageMethod
    from labelwise.methods.shared.linear import Encoder as Encoder
    from labelwise.methods.softmax import Softmax as Softmax
    from labelwise.methods.zero_label.method import ZeroLabel as ZeroLabel
    from labelwise.train.method import Method as Method
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
