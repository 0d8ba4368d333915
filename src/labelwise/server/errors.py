"""HTTP errors: a status and a message."""

from collections.abc import Mapping

from labelwise.core.classifier import Classifier
from labelwise.support.errors import UsageError

STATUSES = {
    400: "The request is wrong: an image that cannot be read, an unknown option, a value out of range.",
    401: "The token is missing or wrong.",
    403: "Refused: the service is read-only, or the request comes from another web page or under a foreign name.",
    404: "There is no such label, image or route.",
    405: "The route takes another method.",
    408: "The request did not arrive in time.",
    409: "The label already exists, or it is the only one left.",
    411: "Content-Length is missing.",
    413: "The body or the image is too large.",
    415: "The route does not accept this content type.",
    422: "The model cannot answer this; the message says why.",
    429: "Too many requests from this address.",
    500: "Internal error; the message gives its id in the log.",
    503: "The service is busy or about to stop.",
}
CLOSE, LATER = {"Connection": "close"}, {"Retry-After": "1"}


class HTTPError(Exception):
    """An error that becomes an HTTP answer with a status and a message."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers


def known_label(classifier: Classifier, label: str, headers: Mapping[str, str] | None = None) -> str:
    """Return the classifier's spelling of a label; refuse an unknown label and list the known ones."""
    try:
        return classifier.labels.meant(label)
    except UsageError as error:
        raise HTTPError(404, str(error), headers) from None
