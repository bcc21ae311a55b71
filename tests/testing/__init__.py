"""The kit that users test their apps with."""
