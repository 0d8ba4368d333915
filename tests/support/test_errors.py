"""The texts of errors and warnings."""

import pickle
import warnings

import pytest

from labelwise.images.catalogue import load
from labelwise.server.databases import shown
from labelwise.support.errors import DataError, LabelwiseWarning, UsageError, without_credentials

SHOWN = {
    'There is nothing at "s3://key:sec/ret@bucket/birds.tar".': 'There is nothing at "s3://***@bucket/birds.tar".',
    "postgresql://ann:p@ss@host:5432/birds?sslmode=require": "postgresql://***@host:5432/birds?sslmode=require",
    "postgresql:/ann:secret@host/birds": "postgresql:/***@host/birds",
    "https://token@host/a.tar": "https://***@host/a.tar",
    "https://host/a.tar?X-Amz-Signature=abc&x=1": "https://host/a.tar?X-Amz-Signature=***&x=1",
    "host=db user=ann password=secret dbname=birds": "host=db user=ann password=*** dbname=birds",
    "s3://bucket/a@b.tar and ann@host": "s3://bucket/a@b.tar and ann@host",
    "C:/photos/a@b.png": "C:/photos/a@b.png",
}


@pytest.mark.parametrize("text", SHOWN)
def test_credentials_of_addresses_are_hidden(text: str) -> None:
    assert without_credentials(text) == SHOWN[text]
    assert str(UsageError(text)) == SHOWN[text]
    assert str(pickle.loads(pickle.dumps(UsageError(text)))) == SHOWN[text], "as worker processes raise it"
    with pytest.warns(LabelwiseWarning) as caught:
        warnings.warn(text, LabelwiseWarning, stacklevel=1)
    assert str(caught[0].message) == SHOWN[text]


@pytest.mark.parametrize("address", ["memory://ann:secret@host/a.tar", "nowhere://ann:secret@host/a.tar"])
def test_an_address_that_cannot_be_read_shows_no_password(address: str) -> None:
    with pytest.raises(DataError) as caught:
        load(address)
    assert "secret" not in str(caught.value)
    assert "***@host/a.tar" in str(caught.value)


def test_a_password_that_breaks_an_address_is_not_shown() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(UsageError, match=r'unexpected spaces found in "\.\.\."') as caught:
        shown("postgresql://ann:sec ret@host/db")
    assert "sec" not in str(caught.value)
