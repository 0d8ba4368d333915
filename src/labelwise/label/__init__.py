"""Label (``lw.label``): label images with few answers. Uses NumPy only; the input is features and actions."""

from typing import TYPE_CHECKING

from labelwise.support.plugins import lazy_names

if TYPE_CHECKING:
    from labelwise.label.actions import Action as Action
    from labelwise.label.person import Person as Person
    from labelwise.label.person import simulate as simulate
    from labelwise.label.progress import Progress as Progress
    from labelwise.label.questions import Question as Question
    from labelwise.label.session import Session as Session
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
